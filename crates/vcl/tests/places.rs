//! Which line decided.

mod support;

use copal_vcl::exec::Machine;
use copal_vcl::host::{Side, Sub};
use support::{MockHost, instance};

const SOURCE: &str = "vcl 4.1;
backend default none;
sub choose {
  if (req.url ~ \"^/none\") {
    return;
  } elseif (req.url ~ \"^/pass\") {
    set req.http.seen = \"yes\"; return (pass);
  }
  else if (req.url ~ \"^/zero\") {
    # A fault that only running shows.
    set req.http.x = 1 / req.restarts;
  }
}
sub vcl_recv {
  call choose;

  if (req.url == \"/synth\") { return (synth(404,
    \"No\")); }
}
sub vcl_backend_response {
  if (beresp.http.a) {
    set beresp.uncacheable = true;
    set beresp.uncacheable = true;
    return (deliver);
  }
  set beresp.uncacheable = false;
}
";

/// File, line, subroutine and text of where `vcl_recv` ended for that URL.
fn check(url: &str, file: &str, line: u32, subroutine: &str, text: &str) {
    let instance = instance(SOURCE);
    let mut machine = Machine::new();
    machine.run(&instance, Sub::Recv, &mut MockHost::request("GET", url).with(Side::Req, "Host", "x"));
    let place = instance.program.place(machine.ended_at()).expect("every instruction has a place");
    assert_eq!((place.line, place.subroutine), (line, subroutine), "{url}");
    assert_eq!(instance.program.source_line(&place), text, "{url}");
    assert_eq!(place.is_builtin, file == "<builtin>", "{url}");
    assert!(place.is_builtin == (place.file == "<builtin>"), "{url} {}", place.file);
}

#[test]
fn the_line_that_ended_a_subroutine() {
    check("/pass", "main", 7, "choose", "set req.http.seen = \"yes\"; return (pass);");
    check("/synth", "main", 17, "vcl_recv", "if (req.url == \"/synth\") { return (synth(404,");
    check("/zero", "main", 11, "choose", "set req.http.x = 1 / req.restarts;");
    for url in ["/none", "/other"] {
        let builtin = copal_vcl::compile::BUILTIN;
        let line = builtin.lines().position(|line| line.trim() == "return (hash);").unwrap() as u32 + 1;
        check(url, "<builtin>", line, "vcl_recv", "return (hash);");
    }
}

#[test]
fn the_line_that_first_made_a_response_uncacheable() {
    let instance = instance(SOURCE);
    let mut machine = Machine::new();
    let mut host = MockHost::request("GET", "/").with(Side::Beresp, "a", "b");
    machine.run(&instance, Sub::BackendResponse, &mut host);
    let place = |at| instance.program.place(at).map(|place| (place.line, place.is_builtin));
    assert_eq!(machine.uncacheable_at().and_then(place), Some((22, false)));
    assert_eq!(place(machine.ended_at()), Some((24, false)));
    // Of the next run; what is set to false is not noted.
    machine.run(&instance, Sub::Recv, &mut MockHost::request("GET", "/"));
    assert_eq!(machine.uncacheable_at(), None);
}

#[test]
fn a_place_that_is_none_is_none() {
    let (one, other) = (instance(SOURCE), instance("vcl 4.1; backend default none;"));
    let mut machine = Machine::new();
    machine.run(&one, Sub::Recv, &mut MockHost::request("GET", "/pass"));
    // Some place or none, but no panic.
    let _ = other.program.place(machine.ended_at());
    assert_eq!(one.program.place(Machine::new().ended_at()).map(|place| place.subroutine), Some("choose"));
}
