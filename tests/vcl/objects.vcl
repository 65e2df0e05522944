# A cache before an S3 endpoint that lets the endpoint decide on every request: a stored object is only a way to answer
# with fewer bytes. In the shape that object stores behind Varnish Enterprise have it.
vcl 4.1;

import goto;
import kvstore;
import std;
import urlplus;
import utils;

probe alive {
    .request =
        "OPTIONS / HTTP/1.1"
        "Connection: close"
        "User-Agent: probe";
    .timeout = 1s;
    .interval = 100ms;
    .window = 5;
    .threshold = 3;
    .initial = 3;
}

# there must be one
backend dummy { .host = "0"; }

sub vcl_init {
    new store = goto.dns_director(s = "@ENDPOINT@", probe = alive);
    new seen = kvstore.init();
}

sub vcl_recv {
    set req.backend_hint = store.backend();
    if (req.method != "GET") {
        return (pass);
    }
    # Each range is an object of its own.
    if (req.http.Range) {
        set req.http.x-part = req.http.Range;
        unset req.http.Range;
    }
    return (hash);
}

sub vcl_hash {
    if (req.http.x-part) {
        hash_data(req.http.x-part);
    }
    hash_data(urlplus.url_get());
    hash_data(req.http.host);
    return (lookup);
}

# Only who waited for another's fetch comes here: what that brought was for somebody else.
sub vcl_hit {
    return (pass);
}

sub vcl_backend_fetch {
    if (bereq.http.x-part) {
        set bereq.http.Range = bereq.http.x-part;
        unset bereq.http.x-part;
    }
}

sub vcl_backend_response {
    if (beresp.status >= 400 && beresp.status != 404) {
        return (error(beresp.status, beresp.reason));
    }
    if (!beresp.http.ETag) {
        set beresp.uncacheable = true;
        return (deliver);
    }
    if (beresp.was_304) {
        seen.counter(urlplus.url_get(), 1);
    } else {
        seen.delete(urlplus.url_get());
    }
    # A part is kept as if it were the whole, so that it can be asked for under a condition.
    unset beresp.http.x-partial;
    if (beresp.status == 206) {
        set beresp.http.x-partial = "yes";
        set beresp.status = 200;
        set beresp.http.x-content-range = beresp.http.Content-Range;
        unset beresp.http.Content-Range;
    }
    # Never fresh, always good for a condition.
    set beresp.ttl = 0.000001s;
    set beresp.grace = 0s;
    set beresp.keep = 10y;
    utils.fast_304();
    return (deliver);
}

sub vcl_backend_error {
    set beresp.ttl = 0s;
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    set beresp.uncacheable = true;
    return (deliver);
}

sub vcl_deliver {
    if (resp.http.x-partial == "yes") {
        set resp.status = 206;
        unset resp.http.x-partial;
        set resp.http.Content-Range = resp.http.x-content-range;
        unset resp.http.x-content-range;
    }
    set resp.http.x-seen = seen.counter(urlplus.url_get(), 0);
}
