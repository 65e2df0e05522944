# What Copal does where your own VCL has not decided. It is compiled behind every program: a subroutine of yours with
# one of these names runs first, and what it leaves undecided is decided here. The names and the effects are those of
# Varnish 7.1.

sub vcl_recv {
    call vcl_builtin_recv;
    return (hash);
}

sub vcl_builtin_recv {
    call vcl_req_host;
    call vcl_req_method;
    call vcl_req_authorization;
    call vcl_req_cookie;
}

# One spelling of a host is one object in the cache; a client of HTTP/1.1 has to name it (RFC 9112, section 3.2).
sub vcl_req_host {
    if (req.http.host ~ "[A-Z]") {
        set req.http.host = req.http.host.lower();
    }
    if (req.esi_level == 0 && req.proto == "HTTP/1.1" && !req.http.host) {
        return (synth(400));
    }
}

# GET and HEAD are cached, the other methods that HTTP knows go through, and of the rest nothing is known but that
# bytes have to pass; by the RFC they go through, too, and what they may have changed is known to be so. PRI is the preface
# of HTTP/2 and no request.
sub vcl_req_method {
    if (req.method == "GET" || req.method == "HEAD") {
        return;
    }
    if (req.method == "PRI") {
        return (synth(405));
    }
    if (req.method == "POST" || req.method == "PUT" || req.method == "DELETE" || req.method == "OPTIONS" ||
        req.method == "PATCH" || req.method == "TRACE" || (req.rfc && req.method != "CONNECT")) {
        return (pass);
    }
    return (pipe);
}

# The answer may be meant for this client only; by the RFC the answer itself says so.
sub vcl_req_authorization {
    if (!req.rfc && req.http.Authorization) {
        return (pass);
    }
}

sub vcl_req_cookie {
    if (!req.rfc && req.http.Cookie) {
        return (pass);
    }
}

sub vcl_pipe {
    call vcl_builtin_pipe;
    return (pipe);
}

sub vcl_builtin_pipe {
}

sub vcl_pass {
    call vcl_builtin_pass;
    return (fetch);
}

sub vcl_builtin_pass {
}

sub vcl_hash {
    call vcl_builtin_hash;
    return (lookup);
}

sub vcl_builtin_hash {
    hash_data(req.url);
    if (!req.http.host) {
        hash_data(server.ip);
    } else {
        hash_data(req.http.host);
    }
}

sub vcl_purge {
    call vcl_builtin_purge;
    return (synth(200, "Purged"));
}

sub vcl_builtin_purge {
}

sub vcl_hit {
    call vcl_builtin_hit;
    return (deliver);
}

sub vcl_builtin_hit {
}

sub vcl_miss {
    call vcl_builtin_miss;
    return (fetch);
}

sub vcl_builtin_miss {
}

sub vcl_deliver {
    call vcl_builtin_deliver;
    return (deliver);
}

sub vcl_builtin_deliver {
}

sub vcl_synth {
    call vcl_builtin_synth;
    return (deliver);
}

sub vcl_builtin_synth {
    set resp.http.Content-Type = "text/html; charset=utf-8";
    set resp.http.Retry-After = "5";
    set resp.body = {"<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>"} + resp.status + " " + resp.reason + {"</title></head>
<body>
<h1>Error "} + resp.status + " " + resp.reason + {"</h1>
<p>The cache could not answer this request.</p>
<p>Guru Meditation: XID: "} + req.xid + {"</p>
<address>Copal cache server</address>
</body>
</html>
"};
}

sub vcl_backend_fetch {
    call vcl_builtin_backend_fetch;
    return (fetch);
}

# A body with a GET means nothing to anybody.
sub vcl_builtin_backend_fetch {
    if (bereq.method == "GET") {
        unset bereq.body;
    }
}

sub vcl_backend_response {
    call vcl_builtin_backend_response;
    return (deliver);
}

sub vcl_builtin_backend_response {
    if (bereq.uncacheable) {
        return (deliver);
    }
    call vcl_beresp_stale;
    call vcl_beresp_cookie;
    call vcl_beresp_control;
    call vcl_beresp_vary;
}

# With bereq.rfc the rules of RFC 9111 have judged all of the answer: what may not be stored has no life, what has to be
# validated each time has keep alone.
sub vcl_beresp_stale {
    if (bereq.rfc && beresp.ttl + beresp.grace + beresp.keep > 0s) {
        return;
    }
    if (beresp.ttl <= 0s) {
        call vcl_beresp_hitmiss;
    }
}

sub vcl_beresp_cookie {
    if (!bereq.rfc && beresp.http.Set-Cookie) {
        call vcl_beresp_hitmiss;
    }
}

# Surrogate-Control, where the origin sends it, speaks to caches like this one and silences Cache-Control.
sub vcl_beresp_control {
    if (bereq.rfc) {
        return;
    }
    if (beresp.http.Surrogate-Control ~ "(?i)no-store") {
        call vcl_beresp_hitmiss;
    }
    if (!beresp.http.Surrogate-Control && beresp.http.Cache-Control ~ "(?i)(private|no-cache|no-store)") {
        call vcl_beresp_hitmiss;
    }
}

sub vcl_beresp_vary {
    if (beresp.http.Vary == "*") {
        call vcl_beresp_hitmiss;
    }
}

# For two minutes requests for this object do not wait for one another, and the next answer that may be cached is.
sub vcl_beresp_hitmiss {
    set beresp.uncacheable = true;
    set beresp.ttl = 120s;
    return (deliver);
}

sub vcl_backend_error {
    call vcl_builtin_backend_error;
    return (deliver);
}

sub vcl_builtin_backend_error {
    set beresp.http.Content-Type = "text/html; charset=utf-8";
    set beresp.http.Retry-After = "5";
    set beresp.body = {"<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>"} + beresp.status + " " + beresp.reason + {"</title></head>
<body>
<h1>Error "} + beresp.status + " " + beresp.reason + {"</h1>
<p>The origin could not be reached or gave no usable answer.</p>
<p>Guru Meditation: XID: "} + bereq.xid + {"</p>
<address>Copal cache server</address>
</body>
</html>
"};
}

sub vcl_init {
    return (ok);
}

sub vcl_fini {
    return (ok);
}
