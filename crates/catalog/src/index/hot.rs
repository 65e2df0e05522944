//! A thread's table of the objects it serves most. Beside each object the table's user keeps a value of its own, a `T`.
//!
//! A hit through it takes no lock and moves no count that other cores share: the table holds one reference of its own,
//! and requests share that within the thread. An entry is only a shortcut: the object's own mark says whether it still
//! lives, and freshness is computed anew for each request.

use super::Key;
use crate::sparse::layout::{Layout, Pieces};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use store::{Flags, Object};
use wire::Fields;

use copal_store as store;
use copal_wire as wire;

const ENTRIES: usize = 4096;

/// An object as this thread knows it: with its head taken apart once.
#[derive(Debug)]
pub struct Known<T> {
    object: Arc<Object>,
    fields: Fields,
    reason: Vec<u8>,
    /// The body may have to be changed for delivery.
    special: bool,
    /// The layout, if the body is in segments.
    sparse: Option<Rc<Pieces>>,
    beside: T,
}

impl<T: Default> Known<T> {
    /// Takes the head of `object` apart.
    pub fn new(object: Arc<Object>) -> Self {
        let mut known = Self {
            fields: Fields::new(),
            reason: Vec::new(),
            special: false,
            sparse: None,
            object,
            beside: T::default(),
        };
        known.load();
        known
    }

    fn load(&mut self) {
        let reason = crate::head::load(self.object.head(), &mut self.fields);
        self.reason.clear();
        self.reason.extend_from_slice(reason);
        self.special = self.object.flags().has(Flags::GZIPPED) || self.object.plan().is_some();
        self.sparse = None;
        if self.object.flags().has(Flags::SPARSE) {
            self.sparse = Pieces::of(&self.object).map(Rc::new);
        }
        self.beside = T::default();
    }
}

impl<T> Known<T> {
    /// The user's value beside the object. It begins as the default.
    #[inline]
    pub fn beside(&self) -> &T {
        &self.beside
    }

    /// The object.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Its fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Whether its body may have to be expanded or put together: it is a gzip stream, or has ESI markup.
    #[inline]
    pub fn is_special(&self) -> bool {
        self.special
    }

    /// The layout of its segments, if its body is in segments.
    #[inline]
    pub fn sparse(&self) -> Option<&Layout> {
        self.sparse.as_ref().map(|pieces| &pieces.layout)
    }

    /// The layout with the base of the segments' keys, to be kept.
    pub fn pieces(&self) -> Option<Rc<Pieces>> {
        self.sparse.clone()
    }

    /// The ESI script of its body, if that has markup.
    pub fn esi_script(&self) -> Option<&[u8]> {
        if self.sparse.is_some() { None } else { self.object.plan() }
    }

    /// The body's length, also where it is in segments; `None` if it is not known yet.
    #[inline]
    pub fn length(&self) -> Option<u64> {
        match &self.sparse {
            Some(pieces) => Some(pieces.layout.total),
            None => self.object.length(),
        }
    }

    /// Its reason phrase.
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }
}

impl<T> Deref for Known<T> {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// Puts `object` into `place`. Where nobody reads the former object its memory serves again, and nothing is allocated.
fn know<T: Default>(place: &mut Option<Rc<Known<T>>>, object: &Arc<Object>) -> Rc<Known<T>> {
    if let Some(known) = place
        && let Some(free) = Rc::get_mut(known)
    {
        free.object = Arc::clone(object);
        free.load();
        return Rc::clone(known);
    }
    let known = Rc::new(Known::new(Arc::clone(object)));
    *place = Some(Rc::clone(&known));
    known
}

/// The table, direct-mapped by the key's last bytes.
#[derive(Debug)]
pub struct Hot<T> {
    entries: Box<[Option<Rc<Known<T>>>]>,
    /// The last object that was looked at and is not in the table.
    cold: Option<Rc<Known<T>>>,
    deaths_seen: u64,
}

impl<T> Default for Hot<T> {
    fn default() -> Self {
        Self { entries: (0..ENTRIES).map(|_| None).collect(), cold: None, deaths_seen: 0 }
    }
}

fn slot(key: &Key) -> usize {
    usize::from(u16::from_le_bytes([key[30], key[31]])) % ENTRIES
}

impl<T: Default> Hot<T> {
    /// The live object known under `key`. Variants are for the caller to check.
    #[inline]
    pub fn get(&self, key: &Key) -> Option<&Rc<Known<T>>> {
        let known = self.entries[slot(key)].as_ref()?;
        (known.key() == key && !known.is_gone()).then_some(known)
    }

    /// Remembers `object`, in the place of whatever had its slot.
    pub fn put(&mut self, object: &Arc<Object>) -> Rc<Known<T>> {
        know(&mut self.entries[slot(object.key())], object)
    }

    /// Takes `object` apart without remembering it: one that is asked for once would push out what is hot.
    pub fn look(&mut self, object: &Arc<Object>) -> Rc<Known<T>> {
        know(&mut self.cold, object)
    }

    /// The index's count of deaths at the last sweep.
    pub fn deaths_seen(&self) -> u64 {
        self.deaths_seen
    }

    /// Drops entries whose object is gone, and those not used since `second`; `deaths` is the index's count.
    pub fn sweep(&mut self, deaths: u64, used_since: u32) {
        let any_died = deaths != self.deaths_seen;
        self.cold = None;
        self.deaths_seen = deaths;
        for entry in &mut self.entries {
            let drop_it = entry
                .as_ref()
                .is_some_and(|known| any_died && known.is_gone() || known.last_use() < used_since);
            if drop_it {
                *entry = None;
            }
        }
    }
}
