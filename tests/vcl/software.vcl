# Software trees: one server after the other until one has the object; what the last one says is kept a while.
vcl 4.1;
import std;

backend nearest {
    .host = "127.0.0.1";
    .port = "@1@";
}
backend second {
    .host = "127.0.0.1";
    .port = "@2@";
}
backend third {
    .host = "127.0.0.1";
    .port = "@3@";
}
backend last_one {
    .host = "127.0.0.1";
    .port = "@4@";
}


sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") {
        return (pipe);
    }
    if (req.restarts == 0) {
        set req.backend_hint = nearest;
    }
    if (req.restarts == 1) {
        set req.backend_hint = second;
    }
    if (req.restarts == 2) {
        set req.backend_hint = third;
    }
    if (req.restarts == 3) {
        set req.backend_hint = last_one;
    }
}

sub vcl_backend_fetch {
    # these servers want to be called by their own name
    unset bereq.http.host;
}

sub vcl_backend_response {
    if ( beresp.status != 200 ) {
        std.log(">> not found at <<");
        std.log(bereq.backend);
        if (bereq.backend != last_one ){
            # not the last of them: keep nothing, so that the others are tried
            set beresp.uncacheable = true;
            return (deliver);
        } else {
            set beresp.ttl = 180s;
            std.log(">> kept <<");
        }
    } 
}

sub vcl_deliver {
    if (resp.status != 200) {
        std.log(obj.uncacheable);
        if (obj.uncacheable){
            std.log(">> on to the next <<");
            return(restart);
        }
    }
}
