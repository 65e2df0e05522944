//! The module `saintmode` of varnish-modules: a backend that is sick for some objects only.
//!
//! An object of the module stands in a backend's place. `saintmode.blacklist(time)` in `vcl_backend_response` marks the
//! requested object as one that this backend cannot serve for a while: asked for it, the director chooses none, and a
//! director above it chooses another member. With `threshold` marks, the backend counts as sick for all fetches.

use crate::arguments::{Arguments, functions, required};
use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use vcl::host::{Fault, Host, Result, Sub};
use vcl::value::{Ask, Backend, BackendRef, Health, ListForm, Resolved, Value};
use vcl::variables::Var;
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

/// The most marks that one director remembers, whatever its threshold.
const LISTED_MAX: usize = 64 * 1024;

/// The module's table. Source: `vmod_saintmode(3)` of varnish-modules.
pub(crate) static VMOD: Vmod = Vmod {
    name: "saintmode",
    functions: functions! {
        "blacklist"(required("expires", Type::Duration)) -> Void, list_object;
        "denylist"(required("expires", Type::Duration)) -> Void, list_object;
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
    /// The program that it belongs to.
    program: String,
    backend: BackendRef,
    /// As the original keeps it: a negative one is very large. With 0, marks have no effect.
    threshold: u32,
    listed: Mutex<Listed>,
}

/// Objects by their hash, each with the ends of its marks: until when the backend cannot serve it.
#[derive(Default)]
struct Listed {
    marks: HashMap<[u8; 32], Vec<Time>>,
    count: usize,
}

impl Listed {
    /// Forgets what is over; how many marks are left.
    fn now(&mut self, now: Time) -> usize {
        self.marks.retain(|_, ends| {
            ends.retain(|end| *end > now);
            !ends.is_empty()
        });
        self.count = self.marks.values().map(Vec::len).sum();
        self.count
    }

    fn add(&mut self, object: [u8; 32], end: Time, now: Time) {
        if self.count >= LISTED_MAX && self.now(now) >= LISTED_MAX {
            return;
        }
        self.marks.entry(object).or_default().push(end);
        self.count += 1;
    }
}

/// The directors that live, of all loaded programs. A program's backends are its own, so the backend that answered tells
/// which director is meant.
static SAINTS: Mutex<Vec<Weak<Saint>>> = Mutex::new(Vec::new());

impl Saint {
    /// How many marks there are now.
    fn listed(&self, now: Time) -> usize {
        let mut listed = self.listed.lock();
        if listed.count == 0 { 0 } else { listed.now(now) }
    }

    /// Why this object, or where there is none any, may not be asked of it: the words for the log.
    fn refusal(&self, object: Option<&[u8; 32]>, now: Time) -> Option<&'static str> {
        let mut listed = self.listed.lock();
        if self.threshold == 0 || listed.count == 0 {
            return None;
        }
        let marks = object.and_then(|object| listed.marks.get(object));
        if marks.is_some_and(|ends| ends.iter().any(|end| *end > now)) {
            return Some("object blacklisted");
        }
        // Looks at all marks only where they may be too many.
        let is_full = listed.count >= self.threshold as usize && listed.now(now) >= self.threshold as usize;
        is_full.then_some("hit threshold")
    }

    fn serves(&self, object: Option<&[u8; 32]>, now: Time) -> bool {
        self.refusal(object, now).is_none()
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
        if self.serves(ask.digest, ask.now) {
            Resolved::Other(Arc::clone(&self.backend))
        } else {
            Resolved::None
        }
    }

    fn resolve_in_task(&self, ask: &Ask<'_>, host: &mut dyn Host) -> Resolved {
        let Some(why) = self.refusal(ask.digest, ask.now) else {
            return Resolved::Other(Arc::clone(&self.backend));
        };
        let words = format!("saintmode: unhealthy: {why} for backend {}", self.backend.name());
        host.log("VCL_Log", words.as_bytes());
        Resolved::None
    }

    fn health(&self, ask: &Ask<'_>) -> Health {
        let health = self.backend.health(&Ask { depth: ask.depth.saturating_add(1), ..*ask });
        let object = ask.digest.filter(|_| ask.is_fetch);
        Health { healthy: health.healthy && self.serves(object, ask.now), ..health }
    }

    fn list(&self, ask: &Ask<'_>, form: ListForm, out: &mut String) {
        self.backend.list(ask, form, out);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn make(name: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let arguments = Arguments(call.arguments);
    let backend = arguments.backend(0)?.ok_or_else(|| Fault(format!("{name}: needs a backend")))?;
    let saint = Arc::new(Saint {
        name: name.into(),
        program: call.host.program().to_owned(),
        backend: Arc::clone(backend),
        threshold: arguments.integer(1)? as u32,
        listed: Mutex::default(),
    });
    let mut saints = SAINTS.lock();
    saints.retain(|saint| saint.strong_count() > 0);
    saints.push(Arc::downgrade(&saint));
    Ok(saint)
}

/// The directors of the program that calls.
fn saints(call: &Call<'_>) -> Vec<Arc<Saint>> {
    let program = call.host.program();
    let all: Vec<Arc<Saint>> = SAINTS.lock().iter().filter_map(Weak::upgrade).collect();
    all.into_iter().filter(|saint| saint.program == program).collect()
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

/// For the object that is asked for, once it is known which that is.
fn is_healthy(call: &mut Call<'_>) -> Result<Value> {
    let (saint, ask) = (saint(call)?, call.host.ask());
    let is_known = !matches!(call.subroutine, Sub::Recv | Sub::Hash);
    let object = ask.digest.filter(|_| is_known);
    Ok(Value::Bool(saint.serves(object, ask.now) && saint.health(&ask).healthy))
}

/// Lists the object of this fetch for the backend that was asked.
fn list_object(call: &mut Call<'_>) -> Result<Value> {
    let expires = Arguments(call.arguments).duration(0)?;
    let saints = saints(call);
    let now = call.host.now();
    if saints.is_empty() {
        call.host.log("VCL_Error", b"saintmode.blacklist(): Saintmode is not configured");
        return Ok(Value::Void);
    }
    if call.subroutine != Sub::BackendResponse {
        call.host.log("VCL_Error", b"saintmode.blacklist() called outside of vcl_backend_response");
        return Ok(Value::Void);
    }
    let Ok(Value::Backend(Some(asked))) = call.host.get(Var::BerespBackend) else { return Ok(Value::Void) };
    let Some(object) = call.host.ask().digest.copied() else { return Ok(Value::Void) };
    let Some(saint) = saints.iter().find(|saint| Arc::ptr_eq(&saint.backend, &asked)) else {
        let words = b"Error: saintmode.blacklist(): Saintmode not configured for this backend.";
        call.host.log("VCL_Error", words);
        return Ok(Value::Void);
    };
    saint.listed.lock().add(object, now + expires, now);
    let words = format!(
        "saintmode: object put on blacklist for backend {} for {expires:.2} seconds",
        saint.backend.name()
    );
    call.host.log("VCL_Log", words.as_bytes());
    Ok(Value::Void)
}

/// What is listed, as JSON, for the directors of this program.
fn status(call: &mut Call<'_>) -> Result<Value> {
    let now = call.host.now();
    let rows = saints(call).into_iter().map(|saint| {
        let (name, backend, count, threshold) =
            (&saint.name, saint.backend.name(), saint.listed(now), saint.threshold);
        format!(
            "\t\t{{ \"name\": \"{name}\", \"backend\": \"{backend}\", \"count\": \"{count}\", \"threshold\": \"{threshold}\" }}"
        )
    });
    let rows: Vec<String> = rows.collect();
    let end = if rows.is_empty() { "" } else { "\n" };
    Ok(Value::text(format!("{{\n\t\"saintmode\": [\n{}{end}\t]\n}}\n", rows.join(",\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeBackend, FakeHost, ask_of, call_function, call_in_module, make_object};

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
        let ask = Ask { is_fetch: true, ..ask_of(now, Some(&digest), b"", 0) };
        let chosen = matches!(saint.resolve(&ask), Resolved::Other(_));
        assert_eq!(saint.health(&ask).healthy, chosen);
        chosen
    }

    #[test]
    fn objects_are_listed_for_a_while_and_the_threshold_is_for_all() {
        let (leaf, object, saint) = made("sm", 2);
        let logged = ["VCL_Log saintmode: object put on blacklist for backend sm-leaf for 10.00 seconds"];
        assert_eq!(mark(&leaf, 1, 100.0), logged);
        assert!(!serves(&saint, 1, 100.0) && serves(&saint, 2, 100.0) && serves(&saint, 1, 111.0));
        mark(&leaf, 2, 105.0);
        assert!(!serves(&saint, 3, 105.0), "the threshold is reached");
        assert!(serves(&saint, 3, 111.0));
        let method = |index: usize, place, now| {
            let mut host = fetch(&leaf, 9, now);
            let method = &VMOD.objects[0].methods[index];
            format!("{:?}", call_function(&mut host, place, method, Some(&object), &[]).0.unwrap())
        };
        mark(&leaf, 2, 105.0);
        // Of objects 2 and 2.
        for (index, place, now, answer) in [
            (1, Sub::Deliver, 105.0, "Int(2)"),
            (3, Sub::BackendFetch, 105.0, "Bool(false)"),
            (3, Sub::Deliver, 105.0, "Bool(false)"),
            (3, Sub::Recv, 105.0, "Bool(false)"),
            (2, Sub::Deliver, 111.0, "Int(2)"),
            (3, Sub::Recv, 111.0, "Bool(false)"),
            (3, Sub::BackendFetch, 116.0, "Bool(true)"),
            (3, Sub::Recv, 116.0, "Bool(true)"),
            (2, Sub::Deliver, 116.0, "Int(0)"),
        ] {
            assert_eq!(method(index, place, now), answer, "{index} {place:?} {now}");
        }
        mark(&leaf, 9, 116.0);
        assert_eq!(method(3, Sub::Recv, 116.0), "Bool(true)", "it is not known yet that it is object 9");
        assert_eq!(method(3, Sub::Deliver, 116.0), "Bool(false)");
        leaf.set(false, 116.0);
        assert_eq!(method(3, Sub::Deliver, 116.0), "Bool(false)");
    }

    #[test]
    fn lists_have_an_end() {
        let mut listed = Listed::default();
        for object in 0..LISTED_MAX + 9 {
            listed.add([(object % 251) as u8; 32], 110.0, 100.0);
        }
        assert_eq!(listed.count, LISTED_MAX);
        assert_eq!((listed.now(105.0), listed.now(111.0)), (LISTED_MAX, 0));
        let (leaf, _object, saint) = made("nothing", 0);
        mark(&leaf, 1, 100.0);
        assert!(serves(&saint, 1, 100.0));
    }

    #[test]
    fn other_backends_are_not_ours() {
        let stranger = FakeBackend::new("stranger", true);
        let (leaf, _object, _saint) = made("shown", 5);
        let logged = mark(&stranger, 1, 100.0);
        let words = "VCL_Error Error: saintmode.blacklist(): Saintmode not configured for this backend.";
        assert_eq!(logged, [words]);
        let mut host = fetch(&leaf, 1, 100.0);
        call_in_module(&VMOD, &mut host, Sub::BackendError, "blacklist", &[Value::Duration(10.0)]).unwrap();
        assert_eq!(host.logged, ["VCL_Error saintmode.blacklist() called outside of vcl_backend_response"]);
        let status = call_in_module(&VMOD, &mut FakeHost::default(), Sub::Recv, "status", &[]).unwrap();
        let Value::String(Some(status)) = status else { panic!("{status:?}") };
        assert!(String::from_utf8_lossy(&status).contains(
            "\t\t{ \"name\": \"shown\", \"backend\": \"shown-leaf\", \"count\": \"0\", \"threshold\": \"5\" }"
        ));
    }
}
