//! The module `kvstore`, after Varnish Enterprise's: texts and counters by key, for all requests of a VCL.
//!
//! A store is 64 tables, each behind its own lock and with its own share of [`BYTES_MAX`]. A full table first lets go of
//! what has expired, then of entries as they come. Nothing here outlives the VCL.
//!
//! With `scope = REQUEST`, what a request sets is seen by that request alone, above what `vcl_init` set.

use crate::arguments::{Arguments, functions, or, required};
use copal_base::Time;
use copal_vcl as vcl;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use vcl::host::{Fault, Result, Sub};
use vcl::value::{Text, Value};
use vcl::vmod::{Call, Object, ObjectRef, Type, Vmod};

/// The module's table.
pub(crate) static VMOD: Vmod = Vmod {
    name: "kvstore",
    functions: &[],
    objects: &[Object {
        name: "init",
        // Enterprise's first parameter is the number of hash buckets; the tables here grow by themselves.
        parameters: &[
            or("buckets", Type::Int, "25000"),
            or("scope", Type::Enum(&["GLOBAL", "REQUEST"]), "GLOBAL"),
        ],
        make,
        methods: functions! {
            "get"(required("key", Type::String), or("default", Type::String, "\"\"")) -> String, get;
            "set"(required("key", Type::String), required("value", Type::String), or("ttl", Type::Duration, "0s"))
                -> Void, set;
            "delete"(required("key", Type::String)) -> Void, delete;
            "counter"(required("key", Type::String), required("delta", Type::Int), or("ttl", Type::Duration, "0s"))
                -> Int, counter;
        },
    }],
};

const TABLES: usize = 64;

/// What one store may hold, keys and values with [`OVERHEAD`].
const BYTES_MAX: usize = 256 << 20;

/// What an entry costs beside its key and value, about.
const OVERHEAD: usize = 100;

/// A value.
#[derive(Clone, Debug)]
enum Stored {
    Text(Text),
    Number(i64),
}

#[derive(Debug)]
struct Entry {
    value: Stored,
    /// From this moment on it is as if it were not there; infinite without a ttl.
    expires: Time,
}

impl Entry {
    fn size(&self, key: &[u8]) -> usize {
        let value = match &self.value {
            Stored::Text(text) => text.len(),
            Stored::Number(_) => 0,
        };
        key.len() + value + OVERHEAD
    }
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Text, Entry>,
    bytes: usize,
}

impl Table {
    fn live(&self, key: &[u8], now: Time) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| now < entry.expires)
    }

    fn put(&mut self, key: &[u8], entry: Entry, most: usize, now: Time) {
        self.remove(key);
        let size = entry.size(key);
        if size > most {
            return;
        }
        if self.bytes + size > most {
            self.make_room(most - size, now);
        }
        self.bytes += size;
        // A copy: the text may be a small part of something large.
        self.entries.insert(Text::copy_from_slice(key), entry);
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some((key, entry)) = self.entries.remove_entry(key) {
            self.bytes -= entry.size(&key);
        }
    }

    /// Gets down to `most` bytes.
    fn make_room(&mut self, most: usize, now: Time) {
        let mut bytes = self.bytes;
        self.entries.retain(|key, entry| {
            let stays = now < entry.expires;
            if !stays {
                bytes -= entry.size(key);
            }
            stays
        });
        // So that not every further entry looks through all again.
        let most = most - most / 8;
        self.entries.retain(|key, entry| {
            let stays = bytes <= most;
            if !stays {
                bytes -= entry.size(key);
            }
            stays
        });
        self.bytes = bytes;
    }
}

/// A store.
#[derive(Debug)]
struct Store {
    tables: Vec<Mutex<Table>>,
    hasher: RandomState,
    /// What one table may hold.
    table_bytes: usize,
    by_request: bool,
}

impl Store {
    fn new(bytes_max: usize, by_request: bool) -> Self {
        Self {
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            table_bytes: bytes_max / TABLES,
            by_request,
        }
    }

    fn table(&self, key: &[u8]) -> &Mutex<Table> {
        &self.tables[self.hasher.hash_one(key) as usize % TABLES]
    }

    fn get(&self, key: &[u8], now: Time) -> Option<Stored> {
        self.table(key).lock().live(key, now).map(|entry| entry.value.clone())
    }

    fn set(&self, key: &[u8], value: &[u8], expires: Time, now: Time) {
        let entry = Entry { value: Stored::Text(Text::copy_from_slice(value)), expires };
        self.table(key).lock().put(key, entry, self.table_bytes, now);
    }

    fn delete(&self, key: &[u8]) {
        self.table(key).lock().remove(key);
    }

    /// Adds `delta`; a key that is not there counts from 0, and so does a text that is no number. Adding 0 only reads.
    fn count(&self, key: &[u8], delta: i64, expires: Option<Time>, now: Time) -> i64 {
        let mut table = self.table(key).lock();
        let old = table.live(key, now);
        let before = old.map_or(0, |entry| number(&entry.value));
        if delta == 0 {
            return before;
        }
        let expires = expires.or(old.map(|entry| entry.expires)).unwrap_or(f64::INFINITY);
        let after = before.saturating_add(delta);
        table.put(key, Entry { value: Stored::Number(after), expires }, self.table_bytes, now);
        after
    }
}

fn number(value: &Stored) -> i64 {
    match value {
        Stored::Number(number) => *number,
        Stored::Text(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        }
    }
}

fn printed(value: Stored) -> Text {
    match value {
        Stored::Text(text) => text,
        Stored::Number(number) => number.to_string().into(),
    }
}

/// What one request has set (or deleted: `None`) in stores of its own scope.
#[derive(Default)]
struct Overlay {
    set: HashMap<Text, Option<Text>>,
    /// Of the keys and values in `set`.
    bytes: usize,
}

/// How many keys a request may set.
const OVERLAY_MAX: usize = 4096;

/// The most bytes of the keys and values that a request sets.
const OVERLAY_BYTES_MAX: usize = 4 << 20;

impl Overlay {
    fn note(&mut self, key: &[u8], value: Option<Text>) -> Result<()> {
        let size = |value: &Option<Text>| key.len() + value.as_ref().map_or(0, Text::len);
        let old = self.set.get(key).map(size);
        let bytes = self.bytes - old.unwrap_or(0) + size(&value);
        if bytes > OVERLAY_BYTES_MAX || (old.is_none() && self.set.len() >= OVERLAY_MAX) {
            let words =
                format!("more than {OVERLAY_MAX} keys or {OVERLAY_BYTES_MAX} bytes of them in one request");
            return Err(Fault(format!("kvstore: {words}")));
        }
        self.bytes = bytes;
        self.set.insert(Text::copy_from_slice(key), value);
        Ok(())
    }
}

/// The request's own layer of a store, if the store has such and a request runs.
fn overlay<'call>(call: &'call mut Call<'_>, store: &Arc<Store>) -> Option<&'call mut Overlay> {
    if !store.by_request || matches!(call.subroutine, Sub::Init | Sub::Fini) {
        return None;
    }
    let key = Arc::as_ptr(store) as usize;
    call.host.task_data(key, &mut || Box::<Overlay>::default()).downcast_mut()
}

fn make(_: &str, call: &mut Call<'_>) -> Result<ObjectRef> {
    let arguments = Arguments(call.arguments);
    if arguments.integer(0)? < 1 {
        return Err(Fault("kvstore.init(): buckets must be at least 1".into()));
    }
    Ok(Arc::new(Store::new(BYTES_MAX, arguments.word(1)? == "REQUEST")))
}

fn store(call: &Call<'_>) -> Result<Arc<Store>> {
    let store = call.object.and_then(|object| Arc::clone(object).downcast().ok());
    store.ok_or_else(|| Fault("a method of kvstore was called on something else".into()))
}

/// When something set now for `ttl` seconds expires; 0 or less is never.
fn expiry(ttl: f64, now: Time) -> Option<Time> {
    (ttl > 0.0).then_some(now + ttl)
}

/// `x.get(key, default="")`
fn get(call: &mut Call<'_>) -> Result<Value> {
    let (store, arguments) = (store(call)?, Arguments(call.arguments));
    let key = arguments.text_or_empty(0)?;
    let own = overlay(call, &store).and_then(|overlay| overlay.set.get(key).cloned());
    let found = match own {
        Some(own) => own,
        None => store.get(key, call.host.now()).map(printed),
    };
    Ok(Value::String(match found {
        Some(text) => Some(text),
        None => arguments.text(1)?.cloned(),
    }))
}

/// `x.set(key, value, ttl=0s)`
fn set(call: &mut Call<'_>) -> Result<Value> {
    let (store, arguments) = (store(call)?, Arguments(call.arguments));
    let (key, value) = (arguments.text_or_empty(0)?, arguments.text_or_empty(1)?);
    if let Some(overlay) = overlay(call, &store) {
        overlay.note(key, Some(Text::copy_from_slice(value)))?;
        return Ok(Value::Void);
    }
    let now = call.host.now();
    store.set(key, value, expiry(arguments.duration(2)?, now).unwrap_or(f64::INFINITY), now);
    Ok(Value::Void)
}

/// `x.delete(key)`
fn delete(call: &mut Call<'_>) -> Result<Value> {
    let (store, arguments) = (store(call)?, Arguments(call.arguments));
    let key = arguments.text_or_empty(0)?;
    match overlay(call, &store) {
        Some(overlay) => overlay.note(key, None)?,
        None => store.delete(key),
    }
    Ok(Value::Void)
}

/// `x.counter(key, delta, ttl=0s)`: the count after `delta` was added.
fn counter(call: &mut Call<'_>) -> Result<Value> {
    let (store, arguments) = (store(call)?, Arguments(call.arguments));
    let (key, delta) = (arguments.text_or_empty(0)?, arguments.integer(1)?);
    let now = call.host.now();
    if store.by_request && !matches!(call.subroutine, Sub::Init | Sub::Fini) {
        let global = store.get(key, now);
        let Some(overlay) = overlay(call, &store) else { return Ok(Value::Int(0)) };
        let before = match overlay.set.get(key) {
            Some(own) => own.clone().map_or(0, |text| number(&Stored::Text(text))),
            None => global.as_ref().map_or(0, number),
        };
        let after = before.saturating_add(delta);
        if delta != 0 {
            overlay.note(key, Some(after.to_string().into()))?;
        }
        return Ok(Value::Int(after));
    }
    Ok(Value::Int(store.count(key, delta, expiry(arguments.duration(2)?, now), now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, call_function, complete, text};

    fn new(scope: &'static str) -> ObjectRef {
        let mut host = FakeHost::default();
        let object = &VMOD.objects[0];
        let arguments = complete(object.parameters, &[Value::Int(10), Value::Enum(scope)]);
        let subroutine = Sub::Init;
        let call = Call {
            host: &mut host,
            arguments: &arguments,
            object: None,
            subroutine,
            regexes: &[],
            wait: None,
        };
        (object.make)("x", &mut { call }).unwrap()
    }

    fn run(
        host: &mut FakeHost,
        store: &ObjectRef,
        subroutine: Sub,
        name: &str,
        arguments: &[Value],
    ) -> Value {
        let method = VMOD.objects[0].methods.iter().find(|method| method.name == name).unwrap();
        call_function(host, subroutine, method, Some(store), arguments).0.unwrap()
    }

    fn shown(value: Value) -> String {
        match value {
            Value::String(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            Value::Int(number) => number.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn texts_and_counters() {
        let (mut host, store) = (FakeHost::default(), new("GLOBAL"));
        let mut check = |name: &str, arguments: &[Value], expected: &str| {
            let value = run(&mut host, &store, Sub::Recv, name, arguments);
            assert_eq!(shown(value), expected, "{name} {arguments:?}");
        };
        check("get", &[text("a"), text("none")], "none");
        check("get", &[text("a")], "");
        check("set", &[text("a"), text("1")], "Void");
        check("get", &[text("a"), text("none")], "1");
        check("counter", &[text("a"), Value::Int(4)], "5");
        check("get", &[text("a")], "5");
        check("counter", &[text("b"), Value::Int(0)], "0");
        check("get", &[text("b"), text("not made by reading")], "not made by reading");
        check("counter", &[text("b"), Value::Int(-3)], "-3");
        check("counter", &[text("b"), Value::Int(0)], "-3");
        check("delete", &[text("b")], "Void");
        check("counter", &[text("b"), Value::Int(1)], "1");
        check("set", &[text("b"), text("word")], "Void");
        check("counter", &[text("b"), Value::Int(i64::MAX)], "9223372036854775807");
        check("counter", &[text("b"), Value::Int(1)], "9223372036854775807");
    }

    #[test]
    fn a_ttl_ends_and_counting_keeps_it() {
        let (mut host, store) = (FakeHost { now: 100.0, ..FakeHost::default() }, new("GLOBAL"));
        let ttl = Value::Duration(10.0);
        run(&mut host, &store, Sub::Recv, "set", &[text("a"), text("x"), ttl.clone()]);
        run(&mut host, &store, Sub::Recv, "counter", &[text("c"), Value::Int(1), ttl]);
        host.now = 109.0;
        assert_eq!(shown(run(&mut host, &store, Sub::Recv, "get", &[text("a")])), "x");
        assert_eq!(shown(run(&mut host, &store, Sub::Recv, "counter", &[text("c"), Value::Int(1)])), "2");
        host.now = 110.0;
        assert_eq!(shown(run(&mut host, &store, Sub::Recv, "get", &[text("a")])), "");
        assert_eq!(shown(run(&mut host, &store, Sub::Recv, "counter", &[text("c"), Value::Int(1)])), "1");
    }

    #[test]
    fn what_a_request_sets_in_its_own_scope_ends_with_it() {
        let (mut host, store) = (FakeHost::default(), new("REQUEST"));
        run(&mut host, &store, Sub::Init, "set", &[text("a"), text("1")]);
        let get = |host: &mut FakeHost| shown(run(host, &store, Sub::Recv, "get", &[text("a"), text("-")]));
        assert_eq!(get(&mut host), "1");
        assert_eq!(shown(run(&mut host, &store, Sub::Recv, "counter", &[text("a"), Value::Int(1)])), "2");
        assert_eq!(get(&mut host), "2");
        run(&mut host, &store, Sub::Recv, "delete", &[text("a")]);
        assert_eq!(get(&mut host), "-");
        host.end_task();
        assert_eq!(get(&mut host), "1");
    }

    #[test]
    fn what_a_request_sets_is_bounded() {
        let key = |number: usize| number.to_string().into_bytes();
        let mut overlay = Overlay::default();
        let mib = |number| Some(vec![number; 1 << 20].into());
        // Three of four are in, with their keys; what is set anew takes the place of what was there.
        for number in [0, 1, 2, 1, 1, 1] {
            overlay.note(&key(number), mib(number as u8)).unwrap();
        }
        assert_eq!(overlay.bytes, 3 * ((1 << 20) + 1));
        assert!(overlay.note(&key(3), mib(3)).is_err());
        overlay.note(&key(2), None).unwrap();
        overlay.note(&key(3), mib(3)).unwrap();

        let mut overlay = Overlay::default();
        (0..OVERLAY_MAX).for_each(|number| overlay.note(&key(number), None).unwrap());
        assert!(overlay.note(&key(OVERLAY_MAX), None).is_err());
        overlay.note(&key(0), Some("x".into())).unwrap();
    }

    #[test]
    fn a_store_stays_within_its_bytes() {
        let store = Store::new(TABLES * 1000, false);
        for number in 0..5000 {
            let key = format!("key {number}");
            store.set(key.as_bytes(), b"value", if number % 2 == 0 { 50.0 } else { 1e9 }, f64::from(number));
            assert!(store.get(key.as_bytes(), 0.0).is_some());
        }
        store.set(b"huge", &[0; 2000], 1e9, 0.0);
        assert!(store.get(b"huge", 0.0).is_none());
        for table in &store.tables {
            let table = table.lock();
            assert!(table.bytes <= 1000 && !table.entries.is_empty());
            assert_eq!(table.bytes, table.entries.iter().map(|(key, entry)| entry.size(key)).sum::<usize>());
        }
    }
}
