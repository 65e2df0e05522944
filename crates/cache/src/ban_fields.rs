//! `obj.http.*` for bans.

use copal_store as store;
use copal_wire as wire;
use store::Object;
use wire::Fields;

/// The value of a stored field.
pub(crate) fn field(object: &Object, name: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Fields::new();
    crate::head::load(object.head(), &mut fields);
    fields.get(name).map(<[u8]>::to_vec)
}
