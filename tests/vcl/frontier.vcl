# Conditions data: four servers in turn, a field each of them asks for, and everything but reading passed along as bytes.
vcl 4.1;

import std;
import directors;

backend frontier_1 {
  .host = "127.0.0.1";
  .port = "@1@";
}
backend frontier_2 {
  .host = "127.0.0.1";
  .port = "@2@";
}
backend frontier_3 {
  .host = "127.0.0.1";
  .port = "@3@";
}
backend frontier_4 {
  .host = "127.0.0.1";
  .port = "@4@";
}

sub vcl_init {
  new turn = directors.round_robin();
  turn.add_backend(frontier_1);
  turn.add_backend(frontier_2);
  turn.add_backend(frontier_3);
  turn.add_backend(frontier_4);
}

sub vcl_recv {
  set req.backend_hint = turn.backend();        
  set req.http.X-frontier-id = "site-cache";
  if (req.method != "GET" && req.method != "HEAD") {
    return (pipe);
  }
}
