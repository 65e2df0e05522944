//! Which tags are logged: a set of tags, written as the parameter `vsl_mask` is.

use crate::tags::Tag;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tags that Varnish 7.1 leaves out unless asked.
const OFF: &[Tag] = &[
    Tag::Debug,
    Tag::ObjProtocol,
    Tag::ObjStatus,
    Tag::ObjReason,
    Tag::ObjHeader,
    Tag::VCL_trace,
    Tag::ExpKill,
    Tag::WorkThread,
    Tag::Hash,
    Tag::VfpAcct,
    Tag::H2RxHdr,
    Tag::H2RxBody,
    Tag::H2TxHdr,
    Tag::H2TxBody,
    Tag::VdpAcct,
];

/// A set of tags: those in it are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mask([u64; 2]);

impl Mask {
    /// Every tag.
    pub const ALL: Mask = Mask([u64::MAX; 2]);
    /// No tag.
    pub const NONE: Mask = Mask([0; 2]);

    /// The tags that are in either.
    pub fn union(self, other: Mask) -> Mask {
        Mask([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// The tags that are in this one and not in the other.
    pub fn without(self, other: Mask) -> Mask {
        Mask([self.0[0] & !other.0[0], self.0[1] & !other.0[1]])
    }

    /// Whether `tag` is logged.
    #[inline]
    pub fn has(self, tag: Tag) -> bool {
        let number = tag.number();
        self.0[usize::from(number >> 6) & 1] >> (number & 63) & 1 != 0
    }

    /// Puts `tag` in or out.
    pub fn set(&mut self, tag: Tag, on: bool) {
        let number = tag.number();
        let bit = 1 << (number & 63);
        let word = &mut self.0[usize::from(number >> 6) & 1];
        if on { *word |= bit } else { *word &= !bit }
    }

    /// The mask after the changes in `text`: `default`, `all`, `none`, or `+Tag` and `-Tag`, with commas or blanks
    /// between; names in any case.
    ///
    /// # Errors
    /// The word that is none of these, in words.
    pub fn changed(mut self, text: &str) -> Result<Mask, String> {
        for word in text.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            match word {
                "default" => self = Mask::default(),
                "all" => self = Mask::ALL,
                "none" => self = Mask::NONE,
                _ => {
                    let (on, name) = match word.as_bytes()[0] {
                        b'+' => (true, &word[1..]),
                        b'-' => (false, &word[1..]),
                        _ => return Err(format!("missing '+' or '-' before \"{word}\"")),
                    };
                    let tag = Tag::from_name(name).ok_or_else(|| format!("unknown log tag \"{name}\""))?;
                    self.set(tag, on);
                }
            }
        }
        Ok(self)
    }
}

impl Default for Mask {
    fn default() -> Self {
        let mut mask = Mask::ALL;
        for tag in OFF {
            mask.set(*tag, false);
        }
        mask
    }
}

impl fmt::Display for Mask {
    /// As `param.show` prints it: the tags left out, or `all` where none is.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for tag in Tag::ALL.iter().filter(|tag| !self.has(**tag)) {
            write!(out, "{separator}-{}", tag.name())?;
            separator = ",";
        }
        if separator.is_empty() { out.write_str("all") } else { Ok(()) }
    }
}

/// A mask that is replaced while threads test it. A reader may for a moment see half of a change: harmless.
#[derive(Debug)]
pub(crate) struct LiveMask([AtomicU64; 2]);

impl LiveMask {
    pub(crate) fn new(mask: Mask) -> Self {
        Self([AtomicU64::new(mask.0[0]), AtomicU64::new(mask.0[1])])
    }

    #[inline]
    pub(crate) fn get(&self) -> Mask {
        Mask([self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed)])
    }

    pub(crate) fn replace(&self, mask: Mask) {
        self.0[0].store(mask.0[0], Ordering::Relaxed);
        self.0[1].store(mask.0[1], Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_prints_as_varnish_prints_it() {
        assert_eq!(
            Mask::default().to_string(),
            "-Debug,-ObjProtocol,-ObjStatus,-ObjReason,-ObjHeader,-VCL_trace,-ExpKill,-WorkThread,-Hash,-VfpAcct,\
             -H2RxHdr,-H2RxBody,-H2TxHdr,-H2TxBody,-VdpAcct"
        );
    }

    #[test]
    fn changes() {
        let mask = Mask::default().changed("+Hash,-VCL_call +vcl_trace").unwrap();
        assert!(mask.has(Tag::Hash) && mask.has(Tag::VCL_trace) && !mask.has(Tag::VCL_call));
        assert!(mask.has(Tag::VCL_return));
        assert_eq!(mask.changed("default"), Ok(Mask::default()));
        for wrong in ["Hash", "+Nothing", "-"] {
            assert!(Mask::default().changed(wrong).is_err(), "{wrong}");
        }
    }
}
