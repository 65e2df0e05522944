//! `obj.http.*` for bans.

use copal_store as store;
use copal_wire as wire;
use store::Object;
use wire::Fields;

/// The value of a stored field.
pub(crate) fn field(object: &Object, name: &[u8]) -> Option<Vec<u8>> {
    let (_, block) = crate::head::split(object.head());
    let mut fields = Fields::new();
    fields.load_block(block);
    fields.get(name).map(<[u8]>::to_vec)
}
