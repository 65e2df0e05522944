# A site's cache: the first server that works, and only the site's own networks.
vcl 4.1;

# imported for name resolution on other sites, not used here
import dynamic;
import directors;

backend near {
    .host = "127.0.0.1";
    .port = "@1@";
    .probe = {
        .url = "/alive";
        .interval = 100ms;
        .timeout = 2s;
        .window = 3;
        .threshold = 2;
        .initial = 2;
    }
}

backend far {
    .host = "127.0.0.1";
    .port = "@2@";
}

acl local {
 "localhost"; /* ourselves */
 "192.168.0.0"/16; 
 "10.0.0.0"/8;
#  "172.16.0.0"/12;
 "149.165.224.0"/23; 
 "192.170.240.0"/23 ;
 "2001:db8:77::"/48;
}

sub vcl_init {

    # new d = dynamic.director(port = "80");

    new first = directors.fallback();
    first.add_backend(near);
    first.add_backend(far);
}

sub vcl_recv {
    set req.backend_hint = first.backend();

    if (!(client.ip ~ local)) {
        return (synth(405));
    } 

    if (req.method != "GET" && req.method != "HEAD") {
        /* only reading is served from here */
        return (pipe);
    }

}
