//! `directors.shard_param`, and the parameters of a choice in their layers.
//!
//! A layer is what one place says; what it leaves open the next one fills in. A parameter set has two layers: what
//! `vcl_init` said, and what the running fetch said, which is kept in the fetch's task data and ends with it.

use super::{is_fetch, is_load};
use crate::arguments::Arguments;
use crate::directors::{hash_of, object};
use bytes::Bytes;
use copal_vcl as vcl;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use vcl::host::{Fault, Host, Result};
use vcl::value::{Ask, Value};
use vcl::vmod::{Call, ObjectRef};

/// Where the key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The request's hash, or where it does not count, its URL.
    Hash,
    /// The URL.
    Url,
    /// A number.
    Key(u32),
    /// The number that a blob begins with.
    Blob(u32),
}

impl By {
    /// The key. `fetch` is whether the request's hash counts: not on the client side, where it may be of another URL.
    pub(super) fn key(self, ask: &Ask<'_>, fetch: bool) -> u32 {
        match (self, ask.digest) {
            (By::Key(key) | By::Blob(key), _) => key,
            (By::Hash, Some(digest)) if fetch => {
                u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
            }
            (By::Hash | By::Url, _) => hash_of(&[ask.url]),
        }
    }

    fn name(self) -> &'static str {
        match self {
            By::Hash => "HASH",
            By::Url => "URL",
            By::Key(_) => "KEY",
            By::Blob(_) => "BLOB",
        }
    }
}

/// What health means for the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Healthy {
    /// The chosen one must be healthy.
    Chosen,
    /// It does not count.
    Ignore,
    /// Alternatives that are passed over must be healthy too.
    All,
}

impl Healthy {
    fn of(word: &str) -> Self {
        match word {
            "IGNORE" => Healthy::Ignore,
            "ALL" => Healthy::All,
            _ => Healthy::Chosen,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Healthy::Chosen => "CHOSEN",
            Healthy::Ignore => "IGNORE",
            Healthy::All => "ALL",
        }
    }
}

/// What one place says of the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Layer {
    by: Option<By>,
    alternative: Option<i64>,
    warmup: Option<f64>,
    rampup: Option<bool>,
    healthy: Option<Healthy>,
}

/// Parameters with nothing left open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parameters {
    pub(super) by: By,
    /// Not negative.
    pub(super) alternative: i64,
    /// 0 to 1, or -1 for the director's.
    pub(super) warmup: f64,
    pub(super) rampup: bool,
    pub(super) healthy: Healthy,
}

impl Parameters {
    /// The first layer that says something wins; the documented defaults come last.
    pub(super) fn from_layers(layers: &[Layer]) -> Self {
        Self {
            by: layers.iter().find_map(|layer| layer.by).unwrap_or(By::Hash),
            alternative: layers.iter().find_map(|layer| layer.alternative).unwrap_or(0),
            warmup: layers.iter().find_map(|layer| layer.warmup).unwrap_or(-1.0),
            rampup: layers.iter().find_map(|layer| layer.rampup).unwrap_or(true),
            healthy: layers.iter().find_map(|layer| layer.healthy).unwrap_or(Healthy::Chosen),
        }
    }
}

impl Layer {
    /// The layer that `.backend()` and `.set()` say: their first seven arguments are the same.
    ///
    /// # Errors
    /// A fault for a key that is missing, out of bounds, or given where it is not asked for, and for an `alt` or
    /// `warmup` out of bounds. `name` is the object's, `function` the method's.
    pub(super) fn from_arguments(
        name: &str,
        function: &str,
        host: &mut dyn Host,
        arguments: Arguments<'_>,
    ) -> Result<Self> {
        let fail =
            |sentence: String| Err(Fault(format!("vmod_directors: shard {name}: {function} {sentence}")));
        let word = arguments.maybe(0, Arguments::word)?;
        let by = match word.unwrap_or("HASH") {
            "KEY" => match arguments.maybe(1, Arguments::integer)? {
                None => return fail("missing key argument with by=KEY".into()),
                Some(key) => match u32::try_from(key) {
                    Ok(key) => By::Key(key),
                    Err(_) => return fail(format!("invalid key argument {key} with by=KEY")),
                },
            },
            "BLOB" => match arguments.maybe(2, Arguments::blob)? {
                None => return fail("missing key_blob argument with by=BLOB".into()),
                Some(blob) => By::Blob(blob_key(name, function, host, blob)),
            },
            word if arguments.given(1) || arguments.given(2) => {
                return fail(format!("key and key_blob arguments are invalid with by={word}"));
            }
            "URL" => By::Url,
            _ => By::Hash,
        };
        let alternative = arguments.maybe(3, Arguments::integer)?;
        if let Some(alternative) = alternative.filter(|alternative| *alternative < 0) {
            return fail(format!("invalid alt argument {alternative}"));
        }
        let warmup = arguments.maybe(4, Arguments::real)?;
        if let Some(warmup) = warmup.filter(|warmup| *warmup != -1.0 && !(0.0..=1.0).contains(warmup)) {
            return fail(format!("invalid warmup argument {warmup:.6}"));
        }
        Ok(Self {
            by: word.map(|_| by),
            alternative,
            warmup,
            rampup: arguments.maybe(5, Arguments::boolean)?,
            healthy: arguments.maybe(6, Arguments::word)?.map(Healthy::of),
        })
    }
}

/// The first four bytes, the highest first; a shorter blob is a smaller number. An empty one is told and is 0.
fn blob_key(name: &str, function: &str, host: &mut dyn Host, blob: Option<&Bytes>) -> u32 {
    let blob = blob.map_or(&[][..], |blob| &blob[..blob.len().min(4)]);
    if blob.is_empty() {
        let sentence = format!(
            "vmod_directors: shard {name}: {function} by=BLOB but no or empty key_blob - using key 0"
        );
        host.log("Error", sentence.as_bytes());
    }
    blob.iter().fold(0, |key, byte| key << 8 | u32::from(*byte))
}

/// A `shard_param` object.
#[derive(Debug)]
pub(super) struct ParameterSet {
    name: String,
    /// In the BLOB that stands for it.
    id: u64,
    /// What `vcl_init` said.
    defaults: RwLock<Layer>,
}

/// The sets alive, by the number in their blob.
static SETS: LazyLock<Mutex<HashMap<u64, Weak<ParameterSet>>>> = LazyLock::new(Mutex::default);
/// What the blob of a set begins with; the set's number follows in 8 bytes, the highest first.
const BLOB_MARK: &[u8; 24] = b"copal directors.shard 1\0";

impl ParameterSet {
    fn new(name: &str) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let set = Arc::new(Self { name: name.into(), id, defaults: RwLock::default() });
        SETS.lock().insert(id, Arc::downgrade(&set));
        set
    }

    /// The set that a blob stands for; `None` if it is another blob, or the set is gone.
    pub(super) fn of(blob: &Bytes) -> Option<Arc<Self>> {
        let id = blob.strip_prefix(BLOB_MARK)?.try_into().ok().map(u64::from_be_bytes)?;
        SETS.lock().get(&id)?.upgrade()
    }

    fn blob(&self) -> Bytes {
        [&BLOB_MARK[..], &self.id.to_be_bytes()].concat().into()
    }

    /// What `vcl_init` said.
    pub(super) fn defaults(&self) -> Layer {
        *self.defaults.read()
    }

    /// What the running fetch said.
    pub(super) fn in_task(&self, host: &mut dyn Host) -> Option<Layer> {
        self.task_layer(host).copied()
    }

    fn task_layer<'host>(&self, host: &'host mut dyn Host) -> Option<&'host mut Layer> {
        host.task_data(std::ptr::from_ref(self) as usize, &mut || Box::<Layer>::default()).downcast_mut()
    }

    /// Replaces what this subroutine may speak for: the set's defaults in `vcl_init`, else the fetch's layer.
    fn replace(&self, call: &mut Call<'_>, function: &str, layer: Layer) -> Result<()> {
        if is_load(call.subroutine) {
            *self.defaults.write() = layer;
        } else if is_fetch(call.subroutine) {
            if let Some(slot) = self.task_layer(call.host) {
                *slot = layer;
            }
        } else {
            let name = &self.name;
            let sentence = format!("{function} may only be used in vcl_init and in backend/pipe context");
            return Err(Fault(format!("vmod_directors: shard {name}: {sentence}")));
        }
        Ok(())
    }

    /// What a director that uses the set would see in this subroutine.
    fn seen(&self, call: &mut Call<'_>) -> Parameters {
        let mut layers = Vec::with_capacity(2);
        if is_fetch(call.subroutine) {
            layers.extend(self.in_task(call.host));
        }
        layers.push(self.defaults());
        Parameters::from_layers(&layers)
    }
}

impl Drop for ParameterSet {
    fn drop(&mut self) {
        SETS.lock().remove(&self.id);
    }
}

/// `new x = directors.shard_param()`
pub(in crate::directors) fn make(name: &str, _: &mut Call<'_>) -> Result<ObjectRef> {
    Ok(ParameterSet::new(name))
}

/// `x.clear()`: everything is left open again.
pub(in crate::directors) fn clear(call: &mut Call<'_>) -> Result<Value> {
    let set = object::<ParameterSet>(call)?;
    set.replace(call, "shard_param.clear()", Layer::default())?;
    Ok(Value::Void)
}

/// `x.set([by], [key], [key_blob], [alt], [warmup], [rampup], [healthy])`: what is not given is left open.
pub(in crate::directors) fn set(call: &mut Call<'_>) -> Result<Value> {
    let set = object::<ParameterSet>(call)?;
    let layer = Layer::from_arguments(&set.name, "shard_param.set()", call.host, Arguments(call.arguments))?;
    set.replace(call, "shard_param.set()", layer)?;
    Ok(Value::Void)
}

/// `x.get_by()`
pub(in crate::directors) fn get_by(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(object::<ParameterSet>(call)?.seen(call).by.name()))
}

/// `x.get_key()`
pub(in crate::directors) fn get_key(call: &mut Call<'_>) -> Result<Value> {
    let by = object::<ParameterSet>(call)?.seen(call).by;
    Ok(Value::Int(i64::from(by.key(&call.host.ask(), is_fetch(call.subroutine)))))
}

/// `x.get_alt()`
pub(in crate::directors) fn get_alt(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Int(object::<ParameterSet>(call)?.seen(call).alternative))
}

/// `x.get_warmup()`
pub(in crate::directors) fn get_warmup(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Real(object::<ParameterSet>(call)?.seen(call).warmup))
}

/// `x.get_rampup()`
pub(in crate::directors) fn get_rampup(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Bool(object::<ParameterSet>(call)?.seen(call).rampup))
}

/// `x.get_healthy()`
pub(in crate::directors) fn get_healthy(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::text(object::<ParameterSet>(call)?.seen(call).healthy.name()))
}

/// `x.use()`: a BLOB that stands for the set. The manual keeps it to fetches, its own example uses it in `vcl_init`, and
/// varnishd takes it anywhere.
pub(in crate::directors) fn use_(call: &mut Call<'_>) -> Result<Value> {
    Ok(Value::Blob(Some(object::<ParameterSet>(call)?.blob())))
}
