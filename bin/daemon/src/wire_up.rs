//! Parameters to the settings of each crate: the one place that knows both.

use crate::parameters::Parameters;
use copal_cache as cache;
use copal_catalog as catalog;
use copal_front as front;
use copal_net as net;
use copal_observe as observe;
use copal_origin as origin;
use copal_rules as rules;
use copal_store as store;
use copal_wire as wire;
use rules::targeted::Names;
use std::sync::Arc;

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn count(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// For the stores.
pub(crate) fn eviction(parameters: &Parameters) -> store::Policy {
    // What is no name of one is refused when the parameter is set.
    store::Policy::named(&parameters.eviction_policy).unwrap_or_default()
}

/// For the cache. `identity` and `hostname` are not parameters.
pub(crate) fn cache(parameters: &Parameters, identity: &str, hostname: &str) -> cache::Settings {
    let mut settings = cache::Settings {
        default_ttl: parameters.default_ttl,
        default_grace: parameters.default_grace,
        default_keep: parameters.default_keep,
        uncacheable_ttl: parameters.uncacheable_ttl,
        shortlived: parameters.shortlived,
        clock_skew: parameters.clock_skew as f64,
        max_restarts: count(parameters.max_restarts),
        max_retries: count(parameters.max_retries),
        http_range_support: parameters.http_range_support,
        http_range_max: size(parameters.http_range_max),
        segment_size: match parameters.segment_size {
            0 => 0,
            size => size.max(4 << 10),
        },
        sparse_min_size: parameters.sparse_min_size,
        lru_interval: parameters.lru_interval,
        sync_purges: parameters.journal_sync == 0.0,
        nuke_limit: parameters.nuke_limit,
        ban_lurker: catalog::ban::Pace {
            sleep: parameters.ban_lurker_sleep,
            age: parameters.ban_lurker_age,
            batch: parameters.ban_lurker_batch,
            holdoff: parameters.ban_lurker_holdoff,
            cutoff: parameters.ban_cutoff,
        },
        cache_req_body_max: parameters.cache_req_body_max,
        synthetic_max: size(parameters.synthetic_max),
        rfc: parameters.rfc,
        keep_validated: parameters.keep_validated,
        heuristic_max: parameters.heuristic_max,
        negative_max: parameters.negative_max,
        // What does not parse is refused when the parameter is set.
        targeted_fields: Arc::new(Names::parse(&parameters.targeted_fields).unwrap_or_default()),
        cache_status: cache::settings::CacheStatus::of(&parameters.cache_status),
        default_stale_if_error: parameters.default_stale_if_error,
        stale_if_error_pause: parameters.stale_if_error_pause,
        proxy_status: parameters.proxy_status,
        proxy_status_next_hop: parameters.proxy_status_next_hop,
        squid_error: parameters.squid_error,
        fetch_elsewhere_max: size(parameters.fetch_elsewhere_max),
        slow_reader_patience: parameters.slow_reader_patience,
        waiting_list_timeout: parameters.waiting_list_timeout,
        relay_max: size(parameters.relay_max),
        head_max: size(parameters.workspace_client),
        fields_max: field_count(parameters),
        session_timeouts: cache::settings::SessionTimeouts {
            timeout_idle: parameters.timeout_idle,
            timeout_linger: parameters.timeout_linger,
            idle_send_timeout: parameters.idle_send_timeout,
            send_timeout: parameters.send_timeout,
        },
        hostname: hostname.to_owned(),
        pipe_sess_max: parameters.pipe_sess_max,
        http_gzip_support: parameters.http_gzip_support,
        gzip_level: count(parameters.gzip_level),
        gzip_memlevel: count(parameters.gzip_memlevel),
        gzip_buffer: size(parameters.gzip_buffer),
        max_esi_depth: count(parameters.max_esi_depth),
        features: features(parameters),
        ..cache::Settings::default()
    };
    settings.set_identity(identity);
    settings
}

/// How many fields a message may have: Varnish counts its first line as five.
fn field_count(parameters: &Parameters) -> usize {
    size(parameters.http_max_hdr).saturating_sub(5)
}

fn features(parameters: &Parameters) -> cache::settings::Features {
    cache::settings::Features {
        esi_ignore_https: parameters.feature("esi_ignore_https"),
        esi_disable_xml_check: parameters.feature("esi_disable_xml_check"),
        esi_ignore_other_elements: parameters.feature("esi_ignore_other_elements"),
        esi_remove_bom: parameters.feature("esi_remove_bom"),
        esi_chop: parameters.debug("esi_chop"),
        esi_include_onerror: parameters.feature("esi_include_onerror"),
        http_date_postel: parameters.feature("http_date_postel"),
    }
}

/// For connections of clients.
pub(crate) fn front(parameters: &Parameters) -> front::Settings {
    front::Settings {
        timeout_idle: parameters.timeout_idle,
        timeout_req: parameters.timeout_req,
        timeout_body: match parameters.timeout_body {
            0.0 => parameters.timeout_idle,
            seconds => seconds,
        },
        idle_send_timeout: parameters.idle_send_timeout,
        send_timeout: parameters.send_timeout,
        pipe_timeout: parameters.pipe_timeout,
        limits: wire::h1::Limits {
            head_bytes: size(parameters.http_req_size),
            line_bytes: size(parameters.http_req_hdr_len),
            fields: field_count(parameters),
        },
        https_scheme: parameters.feature("https_scheme"),
        http2: parameters.feature("http2").then(|| http2(parameters)),
        ..front::Settings::default()
    }
}

fn http2(parameters: &Parameters) -> front::Http2Settings {
    front::Http2Settings {
        concurrent_streams: count(parameters.h2_max_concurrent_streams),
        window_bytes: count(parameters.h2_initial_window_size),
        frame_bytes: count(parameters.h2_max_frame_size),
        table_bytes: count(parameters.h2_header_table_size),
        head_bytes: count(parameters.h2_max_header_list_size),
    }
}

/// For connections to backends.
pub(crate) fn origin(parameters: &Parameters) -> origin::Settings {
    origin::Settings {
        connect_timeout: parameters.connect_timeout,
        first_byte_timeout: parameters.first_byte_timeout,
        between_bytes_timeout: parameters.between_bytes_timeout,
        idle_timeout: parameters.backend_idle_timeout,
        local_error_holddown: parameters.backend_local_error_holddown,
        remote_error_holddown: parameters.backend_remote_error_holddown,
        fetch_time_max: parameters.fetch_time_max,
        fetch_bytes_max: parameters.fetch_bytes_max,
        limits: wire::h1::Limits {
            head_bytes: size(parameters.http_resp_size),
            line_bytes: size(parameters.http_resp_hdr_len),
            fields: field_count(parameters),
        },
        prefer_ipv6: parameters.prefer_ipv6,
        ..origin::Settings::default()
    }
}

/// For the request log, where it is made.
pub(crate) fn log(parameters: &Parameters) -> observe::vsl::Settings {
    observe::vsl::Settings {
        space: size(parameters.vsl_space),
        record_bytes: size(parameters.vsl_reclen),
        buffer_bytes: size(parameters.vsl_buffer),
        sync: parameters.debug("syncvsl"),
        mask: mask(parameters),
    }
}

/// Which tags are logged.
pub(crate) fn mask(parameters: &Parameters) -> observe::Mask {
    observe::Mask::ALL.changed(&parameters.vsl_mask).expect("the parameter was checked when it was set")
}

/// For listening sockets.
pub(crate) fn listen(parameters: &Parameters) -> net::listen::Settings {
    net::listen::Settings {
        depth: count(parameters.listen_depth),
        keepalive: net::stream::Keepalive {
            time_s: parameters.tcp_keepalive_time as u64,
            interval_s: parameters.tcp_keepalive_intvl as u64,
            probes: count(parameters.tcp_keepalive_probes),
        },
        ..net::listen::Settings::default()
    }
}

/// For worker threads.
pub(crate) fn worker(parameters: &Parameters) -> net::worker::Settings {
    net::worker::Settings { drain_limit: parameters.drain_limit, ..net::worker::Settings::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the crates hold as their defaults and what our table says are the same, where both name the same thing.
    #[test]
    fn defaults_agree() {
        let parameters = Parameters::default();
        assert_eq!(cache(&parameters, "copal", "localhost"), cache::Settings::default());
        assert_eq!(front(&parameters), front::Settings::default());
        assert_eq!(origin(&parameters), origin::Settings::default());
        assert_eq!(worker(&parameters), net::worker::Settings::default());
        assert_eq!(listen(&parameters).keepalive, net::stream::Keepalive::default());
        assert_eq!(mask(&parameters), observe::Mask::default());
    }
}
