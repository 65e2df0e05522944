//! The module `saintmode` of varnish-modules: a backend that is sick for some objects only.
//!
//! An object of the module stands in a backend's place. `saintmode.blacklist(time)` in `vcl_backend_response` or
//! `vcl_backend_error` marks the requested object as one that this backend cannot serve for a while: asked for it, the
//! director chooses none, and a director above it chooses another member. With `threshold` objects marked, the backend
//! counts as sick for all. The list is bounded by the threshold.

use crate::arguments::{Arguments, functions, required};
use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use vcl::host::{Fault, Result, Sub};
use vcl::value::{Ask, Backend, BackendRef, Health, ListForm, Resolved, Value};
use vcl::variables::Var;
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

/// The most objects that one director remembers, whatever its threshold.
const LISTED_MAX: usize = 64 * 1024;

/// Where there is an answer or its absence to judge.
const ANSWERS: &[Sub] = &[Sub::BackendResponse, Sub::BackendError];

/// The module's table. Source: `vmod_saintmode(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "saintmode",
    functions: functions! {
        "blacklist"(required("expires", Type::Duration)) -> Void, list_object, in ANSWERS;
        "denylist"(required("expires", Type::Duration)) -> Void, list_object, in ANSWERS;
        "status"() -> String, status;
    },
    objects: &[Object {
        name: "saintmode",
        parameters: &[required("backend", Type::Backend), required("threshold", Type::Int)],
        make,
        methods: functions! {
            "backend"() -> Backend, backend;
            "blacklist_count"() -> Int, count;
            "denylist_count"() -> Int, count;
            "is_healthy"() -> Bool, is_healthy;
        },
    }],
};

/// The director.
pub(crate) struct Saint {
    name: String,
    backend: BackendRef,
    threshold: usize,
    /// Objects by their hash, and until when the backend cannot serve them.
    listed: Mutex<HashMap<[u8; 32], Time>>,
}

/// The directors that live, of all loaded programs. A program's backends are its own, so the backend that answered tells
/// which director is meant.
static SAINTS: Mutex<Vec<Weak<Saint>>> = Mutex::new(Vec::new());

impl Saint {
    /// How many objects are listed now.
    fn listed(&self, now: Time) -> usize {
        self.listed.lock().values().filter(|until| **until > now).count()
    }

    fn serves(&self, ask: &Ask<'_>) -> bool {
        let listed = self.listed.lock();
        if listed.is_empty() {
            return true;
        }
        let mine = ask.digest.and_then(|digest| listed.get(digest));
        if mine.is_some_and(|until| *until > ask.now) {
            return false;
        }
        listed.len() < self.threshold
            || listed.values().filter(|until| **until > ask.now).count() < self.threshold
    }

    fn list(&self, object: [u8; 32], until: Time, now: Time) {
        let mut listed = self.listed.lock();
        if listed.len() >= self.threshold.min(LISTED_MAX) {
            listed.retain(|_, until| *until > now);
        }
        if listed.len() < self.threshold.min(LISTED_MAX) || listed.contains_key(&object) {
            listed.insert(object, until);
        }
    }
}

impl Backend for Saint {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "saintmode"
    }

    fn resolve(&self, ask: &Ask<'_>) -> Resolved {
        if self.serves(ask) { Resolved::Other(Arc::clone(&self.backend)) } else { Resolved::None }
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        let health = self.backend.health(&Ask { depth: ask.depth.saturating_add(1), ..*ask });
        Health { healthy: health.healthy && self.serves(ask), ..health }
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        self.backend.list(ask, form, out);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A threshold of 0 or less lists nothing, as in varnish-modules.
fn make(name: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let arguments = Arguments(call.arguments);
    let backend = arguments.backend(0)?.ok_or_else(|| Fault(format!("{name}: needs a backend")))?;
    let saint = Arc::new(Saint {
        name: name.into(),
        backend: Arc::clone(backend),
        threshold: usize::try_from(arguments.integer(1)?).unwrap_or(0),
        listed: Mutex::default(),
    });
    let mut saints = SAINTS.lock();
    saints.retain(|saint| saint.strong_count() > 0);
    saints.push(Arc::downgrade(&saint));
    Ok(saint)
}

fn saint<'call>(call: &Call<'call>) -> Result<Arc<Saint>> {
    call.object
        .and_then(|object| Arc::clone(object).downcast().ok())
        .ok_or_else(|| Fault("saintmode: a method was called on something else".into()))
}

fn backend(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Backend(Some(saint(call)?)))
}

fn count(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(saint(call)?.listed(call.host.now()) as i64))
}

/// As a whole: below the threshold, and the backend healthy.
fn is_healthy(call: &mut Call<'_>) -> Result<Value> {
    let saint = saint(call)?;
    let ask = Ask { digest: None, ..call.host.ask() };
    Ok(Value::Bool(saint.health(&ask).healthy))
}

/// Lists the object of this fetch for the backend that was asked.
fn list_object(call: &mut Call<'_>) -> Result<Value> {
    let expires = Arguments(call.arguments).duration(0)?;
    let now = call.host.now();
    let Ok(Value::Backend(Some(asked))) = call.host.get(Var::BerespBackend) else { return Ok(Value::Void) };
    let Some(object) = call.host.ask().digest.copied() else { return Ok(Value::Void) };
    let saints = SAINTS.lock();
    let found = saints.iter().filter_map(Weak::upgrade).find(|saint| Arc::ptr_eq(&saint.backend, &asked));
    match found {
        Some(saint) if saint.threshold > 0 && expires > 0.0 => saint.list(object, now + expires, now),
        Some(_) => {}
        None => {
            let words = format!("saintmode.blacklist() error: no saintmode director for {}", asked.name());
            call.host.log("VCL_Error", words.as_bytes());
        }
    }
    Ok(Value::Void)
}

/// What is listed, as JSON, for the directors of all loaded programs.
fn status(call: &mut Call<'_>) -> Result<Value> {
    let now = call.host.now();
    let saints: Vec<Arc<Saint>> = SAINTS.lock().iter().filter_map(Weak::upgrade).collect();
    let rows = saints.iter().map(|saint| {
        let (name, count, threshold) = (&saint.name, saint.listed(now), saint.threshold);
        format!("\t\t{{\"name\": \"{name}\", \"count\": \"{count}\", \"threshold\": \"{threshold}\"}}")
    });
    let rows: Vec<String> = rows.collect();
    Ok(Value::text(format!("{{\n\t\"saintmode\": [\n{}\n\t]\n}}\n", rows.join(",\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeBackend, FakeHost, call_function, call_in_module, make_object};

    fn made(name: &str, threshold: i64) -> (Arc<FakeBackend>, ObjectRef, BackendRef) {
        let backend = FakeBackend::new(&format!("{name}-leaf"), true);
        let reference: BackendRef = backend.clone();
        let arguments = [Value::Backend(Some(reference)), Value::Int(threshold)];
        let object = make_object(&VMOD.objects[0], name, &arguments).unwrap();
        let saint: Arc<Saint> = Arc::clone(&object).downcast().ok().unwrap();
        (backend, object, saint)
    }

    fn fetch(backend: &Arc<FakeBackend>, object: u8, now: Time) -> FakeHost {
        let asked = Value::Backend(Some(backend.clone() as BackendRef));
        FakeHost {
            now,
            digest: Some([object; 32]),
            variables: vec![(Var::BerespBackend, asked)],
            ..FakeHost::default()
        }
    }

    fn mark(backend: &Arc<FakeBackend>, object: u8, now: Time) -> Vec<String> {
        let mut host = fetch(backend, object, now);
        let arguments = [Value::Duration(10.0)];
        call_in_module(&VMOD, &mut host, Sub::BackendResponse, "blacklist", &arguments).unwrap();
        host.logged
    }

    fn serves(saint: &BackendRef, object: u8, now: Time) -> bool {
        let digest = [object; 32];
        let ask = Ask { now, digest: Some(&digest), url: b"", random: 0, depth: 0, tried: &[] };
        let chosen = matches!(saint.resolve(&ask), Resolved::Other(_));
        assert_eq!(saint.health(&ask).healthy, chosen);
        chosen
    }

    #[test]
    fn objects_are_listed_for_a_while_and_the_threshold_is_for_all() {
        let (leaf, object, saint) = made("sm", 2);
        assert!(mark(&leaf, 1, 100.0).is_empty());
        assert!(!serves(&saint, 1, 100.0) && serves(&saint, 2, 100.0) && serves(&saint, 1, 111.0));
        mark(&leaf, 2, 105.0);
        assert!(!serves(&saint, 3, 105.0), "the threshold is reached");
        assert!(serves(&saint, 3, 111.0));
        let method = |index: usize, now| {
            let mut host = fetch(&leaf, 9, now);
            let method = &VMOD.objects[0].methods[index];
            format!("{:?}", call_function(&mut host, Sub::Deliver, method, Some(&object), &[]).0.unwrap())
        };
        assert_eq!((method(3, 105.0), method(1, 105.0)), ("Bool(false)".into(), "Int(2)".into()));
        assert_eq!((method(3, 111.0), method(2, 111.0)), ("Bool(true)".into(), "Int(1)".into()));
        leaf.set(false, 111.0);
        assert_eq!(method(3, 111.0), "Bool(false)");
    }

    #[test]
    fn lists_have_an_end() {
        let (leaf, _object, saint) = made("bounded", 3);
        for object in 0..20 {
            mark(&leaf, object, 100.0);
        }
        let saint: &Saint = saint.as_any().downcast_ref().unwrap();
        assert_eq!(saint.listed(100.0), 3);
        let (leaf, _object, saint) = made("nothing", 0);
        mark(&leaf, 1, 100.0);
        assert!(serves(&saint, 1, 100.0));
    }

    #[test]
    fn other_backends_are_not_ours() {
        let stranger = FakeBackend::new("stranger", true);
        let logged = mark(&stranger, 1, 100.0);
        assert_eq!(logged, ["VCL_Error saintmode.blacklist() error: no saintmode director for stranger"]);
        let (_leaf, _object, _saint) = made("shown", 5);
        let status = call_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, "status", &[]).unwrap();
        let Value::String(Some(status)) = status else { panic!("{status:?}") };
        assert!(
            String::from_utf8_lossy(&status)
                .contains("{\"name\": \"shown\", \"count\": \"0\", \"threshold\": \"5\"}")
        );
    }
}
