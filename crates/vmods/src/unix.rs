//! The module `unix` of Varnish 7.1: who runs the client at the other end of a Unix-domain socket.
//!
//! Ids are those of the moment of connecting. Looking up a name may ask a directory service, so that is done on a helper
//! thread, and what came of it is kept for [`KEPT_S`] seconds.

use crate::arguments::functions;
use crate::task;
use copal_base::Time;
use copal_net as net;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::LazyLock;
use vcl::host::{Result, Sub};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Vmod};

/// Where there is a client.
const REQUESTS: &[Sub] = &[
    Sub::Recv,
    Sub::Hash,
    Sub::Pipe,
    Sub::Pass,
    Sub::Hit,
    Sub::Miss,
    Sub::Purge,
    Sub::Deliver,
    Sub::Synth,
    Sub::BackendFetch,
    Sub::BackendResponse,
    Sub::BackendError,
];

/// How long a name is kept, in seconds.
const KEPT_S: f64 = 60.0;
/// How many names are kept; when full, all are dropped.
const KEPT_MAX: usize = 1024;

/// The module's table. Source: `vmod_unix(3)` of Varnish 7.1.
pub(crate) static VMOD: Vmod = Vmod {
    name: "unix",
    functions: functions! {
        "user"() -> String, user, in REQUESTS;
        "group"() -> String, group, in REQUESTS;
        "uid"() -> Int, uid, in REQUESTS;
        "gid"() -> Int, gid, in REQUESTS;
    },
    objects: &[],
};

fn credentials(call: &mut Call<'_>) -> Option<(u32, u32)> {
    let credentials = call.host.credentials();
    if credentials.is_none() {
        call.host.log("VCL_Error", b"vmod unix error: not listening on a Unix domain socket");
    }
    credentials
}

fn uid(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(credentials(call).map_or(-1, |(user, _)| i64::from(user))))
}

fn gid(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(credentials(call).map_or(-1, |(_, group)| i64::from(group))))
}

fn user(call: &mut Call<'_>) -> Result<Value> {
    let id = credentials(call).map(|(user, _)| user);
    name(call, Kind::User, id)
}

fn group(call: &mut Call<'_>) -> Result<Value> {
    let id = credentials(call).map(|(_, group)| group);
    name(call, Kind::Group, id)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    User,
    Group,
}

impl Kind {
    fn look_up(self, id: u32) -> io::Result<Option<String>> {
        match self {
            Self::User => net::accounts::user_name(id),
            Self::Group => net::accounts::group_name(id),
        }
    }
}

/// Until when a name is good, and the name; absent where the id has none.
type Known = (Time, Option<Text>);

static KNOWN: LazyLock<Mutex<HashMap<(Kind, u32), Known>>> = LazyLock::new(Mutex::default);

fn name(call: &mut Call<'_>, kind: Kind, id: Option<u32>) -> Result<Value> {
    let Some(id) = id else { return Ok(Value::String(None)) };
    let now = call.host.now();
    let known = KNOWN.lock().get(&(kind, id)).cloned();
    if let Some((_, name)) = known.filter(|(until, _)| now < *until) {
        return Ok(Value::String(name));
    }
    task::blocking(call, move || {
        // An id that cannot be looked up has no name: the module's manual wants no failure of that.
        let name = kind.look_up(id).ok().flatten().map(Text::from);
        let mut known = KNOWN.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert((kind, id), (now + KEPT_S, name.clone()));
        Ok(Value::String(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, finish_in_module};

    fn call(host: &mut FakeHost, name: &str) -> String {
        format!("{:?}", finish_in_module(&VMOD, host, Sub::Deliver, name, &[]).unwrap())
    }

    #[test]
    fn ids_and_names_of_the_peer() {
        let mut host = FakeHost { credentials: Some((0, 0)), ..FakeHost::default() };
        for _ in 0..2 {
            assert_eq!((call(&mut host, "uid"), call(&mut host, "gid")), ("Int(0)".into(), "Int(0)".into()));
            assert_eq!(call(&mut host, "user"), "String(Some(b\"root\"))");
            assert_eq!(call(&mut host, "group"), "String(Some(b\"root\"))");
        }
        host.credentials = Some((u32::MAX - 7, 0));
        assert_eq!(call(&mut host, "user"), "String(None)");
        assert!(host.logged.is_empty());
    }

    #[test]
    fn without_a_unix_socket() {
        let mut host = FakeHost::default();
        for (name, answer) in
            [("uid", "Int(-1)"), ("gid", "Int(-1)"), ("user", "String(None)"), ("group", "String(None)")]
        {
            assert_eq!(call(&mut host, name), answer);
        }
        assert_eq!(host.logged.len(), 4);
        assert_eq!(host.logged[0], "VCL_Error vmod unix error: not listening on a Unix domain socket");
    }
}
