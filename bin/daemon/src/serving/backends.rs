//! The backends and directors of a loaded VCL, as `backend.list` and `backend.set_health` see them.

use crate::server::{AdminHealth, Backend};
use base::Time;
use cache::Vcl;
use copal_base as base;
use copal_cache as cache;
use copal_origin as origin;
use copal_vcl as vcl;
use copal_vmods as vmods;
use std::any::Any;
use std::sync::Arc;
use vcl::value::{Ask, BackendRef, ListForm, Operator};

/// The backends that are defined in the VCL, not its directors.
pub(super) fn leaves(vcl: &Vcl) -> Vec<Arc<origin::Backend>> {
    vcl.instance.backends.iter().flatten().filter_map(leaf).collect()
}

fn leaf(backend: &BackendRef) -> Option<Arc<origin::Backend>> {
    let any: Arc<dyn Any + Send + Sync> = Arc::clone(backend) as _;
    any.downcast().ok()
}

/// The groups that stand for host names, made by the VCL.
pub(super) fn groups(vcl: &Vcl) -> Vec<Arc<origin::Group>> {
    let objects = vcl.instance.objects.iter().filter_map(|object| object.get());
    objects.filter_map(|object| Arc::clone(object).downcast().ok()).collect()
}

/// The backends of groups.
fn grouped(vcl: &Vcl) -> impl Iterator<Item = Arc<origin::Backend>> {
    groups(vcl).into_iter().flat_map(|group| group.members())
}

/// All backends, of the source and of groups.
pub(super) fn all(vcl: &Vcl) -> impl Iterator<Item = Arc<origin::Backend>> {
    leaves(vcl).into_iter().chain(grouped(vcl))
}

fn directors(vcl: &Vcl) -> impl Iterator<Item = BackendRef> {
    vcl.instance.objects.iter().filter_map(|object| object.get().and_then(vmods::director_of))
}

/// Where nothing is requested, a director is asked like this.
pub(super) fn idle_ask(now: Time) -> Ask<'static> {
    Ask { now, digest: None, is_fetch: false, url: b"", random: 0, depth: 0, tried: &[] }
}

/// All rows of one VCL: backends in the order of the source, then directors.
pub(super) fn list(vcl: &Vcl, now: Time) -> Vec<Backend> {
    let ask = idle_ask(now);
    let backends = all(vcl).map(|backend| leaf_row(vcl, &backend));
    backends.chain(directors(vcl).map(|director| director_row(vcl, &director, &ask))).collect()
}

fn leaf_row(vcl: &Vcl, backend: &origin::Backend) -> Backend {
    let probe = backend.probe().map(origin::probe::State::window);
    Backend {
        vcl: vcl.name.clone(),
        name: backend.definition().name.clone(),
        kind: "backend".to_owned(),
        admin: match backend.admin() {
            origin::Admin::Auto => AdminHealth::Auto,
            origin::Admin::Healthy => AdminHealth::Healthy,
            origin::Admin::Sick => AdminHealth::Sick,
        },
        probe: probe.as_ref().map(|window| (u64::from(window.good()), u64::from(window.size()))),
        healthy: probe.as_ref().map_or(!backend.definition().none, |window| window.healthy()),
        changed: backend.changed(),
        details: backend.probe().map_or_else(Vec::new, probe_lines),
        details_json: backend.probe().map_or("{}".to_owned(), probe_json),
    }
}

/// What `-p` adds for a probed backend: the last 64 outcomes, oldest first.
fn probe_lines(probe: &origin::probe::State) -> Vec<String> {
    let window = probe.window();
    let mut lines = vec![
        format!(
            " Current states  good: {:2} threshold: {:2} window: {:2}",
            window.good(),
            window.threshold(),
            window.size()
        ),
        format!("  Average response time of good probes: {:.6}", window.average()),
        "  Oldest ================================================== Newest".to_owned(),
    ];
    for (letter, words, bits) in window.history().filter(|(letter, _, bits)| *letter == 'H' || *bits != 0) {
        let row: String = (0..64).rev().map(|bit| if bits >> bit & 1 == 1 { letter } else { '-' }).collect();
        lines.push(format!("  {row} {words}"));
    }
    lines.push(String::new());
    lines
}

/// The same in JSON, the bits as numbers.
fn probe_json(probe: &origin::probe::State) -> String {
    let window = probe.window();
    let bits: String =
        window.history().map(|(letter, _, bits)| format!("        \"bits_{letter}\": {bits},\n")).collect();
    format!(
        "{{\n{bits}        \"good\": {},\n        \"threshold\": {},\n        \"window\": {}\n      }}",
        window.good(),
        window.threshold(),
        window.size()
    )
}

fn director_row(vcl: &Vcl, director: &BackendRef, ask: &Ask<'_>) -> Backend {
    let (mut summary, mut members, mut details_json) = (String::new(), String::new(), String::new());
    director.list(ask, ListForm { members: false, json: false }, &mut summary);
    director.list(ask, ListForm { members: true, json: false }, &mut members);
    director.list(ask, ListForm { members: true, json: true }, &mut details_json);
    let health = director.health(ask);
    let word = director.operator().and_then(Operator::word);
    Backend {
        vcl: vcl.name.clone(),
        name: director.name().to_owned(),
        kind: director.kind().to_owned(),
        admin: match word {
            None => AdminHealth::Auto,
            Some(word) if word.healthy => AdminHealth::Healthy,
            Some(_) => AdminHealth::Sick,
        },
        probe: counts(&summary),
        healthy: opinion(&summary).unwrap_or(health.healthy),
        changed: health.changed,
        // The text goes on in the director's own line, whose rest is empty.
        details: members.split('\n').skip(1).map(str::to_owned).collect(),
        details_json: nested(&details_json),
    }
}

/// An object as a director writes it, in the place of a value: without the comma after it, and indented.
fn nested(object: &str) -> String {
    object.trim_end().trim_end_matches(',').replace('\n', "\n      ")
}

/// The two numbers of `2/3<TAB>healthy`.
fn counts(summary: &str) -> Option<(u64, u64)> {
    let (good, total) = summary.split('\t').next()?.split_once('/')?;
    Some((good.parse().ok()?, total.parse().ok()?))
}

/// The word of `2/3<TAB>healthy`: what the director thinks itself, whatever the operator said.
fn opinion(summary: &str) -> Option<bool> {
    summary.split_once('\t').map(|(_, word)| word.trim_end() == "healthy")
}

/// Notes what the operator says of the backend or director `name`.
pub(super) fn set_health(vcl: &Vcl, name: &str, health: AdminHealth, now: Time) {
    let admin = match health {
        AdminHealth::Auto => origin::Admin::Auto,
        AdminHealth::Healthy => origin::Admin::Healthy,
        AdminHealth::Sick => origin::Admin::Sick,
    };
    let every = leaves(vcl).into_iter().chain(grouped(vcl));
    for backend in every.filter(|backend| backend.definition().name == name) {
        backend.set_admin(admin, now);
    }
    let word = match health {
        AdminHealth::Auto => None,
        AdminHealth::Healthy => Some(true),
        AdminHealth::Sick => Some(false),
    };
    for director in directors(vcl).filter(|director| director.name() == name) {
        if let Some(operator) = director.operator() {
            operator.set(word, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_directors() {
        assert_eq!(counts("2/3\thealthy"), Some((2, 3)));
        assert_eq!(counts(""), None);
        assert_eq!(opinion("2/3\thealthy"), Some(true));
        assert_eq!(opinion("0/3\tsick"), Some(false));
        assert_eq!(opinion(""), None);
        assert_eq!(nested("{\n  \"a\": 1\n},\n"), "{\n        \"a\": 1\n      }");
        assert_eq!(nested(""), "");
    }
}
