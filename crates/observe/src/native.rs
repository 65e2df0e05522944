//! The records of subroutines that are built in, made when the program is compiled.

use crate::records::Records;
use crate::tags::Tag;
use crate::vsl::{self, RECORD_HEAD};

/// Room for the two records.
const BYTES: usize = 64;

/// `VCL_call` and `VCL_return` of a subroutine that runs without a machine.
#[derive(Debug)]
pub struct Native {
    name: &'static str,
    action: &'static str,
    /// Both records, their transaction's number left out.
    bytes: [u8; BYTES],
    /// Where the second begins, and where it ends.
    second: usize,
    end: usize,
}

impl Native {
    /// The records of subroutine `name`, whose action is `action`; together at most 38 bytes.
    pub const fn new(name: &'static str, action: &'static str) -> Native {
        let mut bytes = [0; BYTES];
        let second = put(&mut bytes, 0, Tag::VCL_call, name.as_bytes());
        let end = put(&mut bytes, second, Tag::VCL_return, action.as_bytes());
        Native { name, action, bytes, second, end }
    }
}

/// Writes a record without its number at `at`; returns where it ends.
const fn put(bytes: &mut [u8; BYTES], at: usize, tag: Tag, text: &[u8]) -> usize {
    let word = vsl::first_word(tag, text.len() + 1).to_ne_bytes();
    let mut index = 0;
    while index < word.len() {
        bytes[at + index] = word[index];
        index += 1;
    }
    index = 0;
    while index < text.len() {
        bytes[at + RECORD_HEAD + index] = text[index];
        index += 1;
    }
    at + RECORD_HEAD + 4 * vsl::words(text.len() + 1)
}

impl Records {
    /// The two records of a subroutine that is built in.
    #[inline]
    pub fn native(&mut self, native: &Native) {
        let whole = self.mask.has(Tag::VCL_call) && self.mask.has(Tag::VCL_return);
        if !whole || self.record_bytes < BYTES {
            self.text(Tag::VCL_call, native.name.as_bytes());
            return self.text(Tag::VCL_return, native.action.as_bytes());
        }
        self.make_room(BYTES);
        let identity = self.identity.to_ne_bytes();
        let room = &mut self.buffer[self.used..self.used + BYTES];
        room.copy_from_slice(&native.bytes);
        room[4..8].copy_from_slice(&identity);
        room[native.second + 4..native.second + 8].copy_from_slice(&identity);
        self.used += native.end;
        self.count += 2;
        self.written();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Mask;
    use crate::records::Kind;
    use crate::shm::Worker;
    use crate::vsl::Settings;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    #[test]
    fn they_are_as_if_made_one_by_one() {
        let path = std::env::temp_dir().join(format!("copal-native-{}", unique()));
        std::fs::create_dir(&path).unwrap();
        let settings = Settings { space: 1 << 20, ..Settings::default() };
        let worker = Worker::create(&path, &settings, 0.0).unwrap();
        const LONGEST: Native = Native::new("BACKEND_RESPONSE", "deliver");
        const SHORT: Native = Native::new("HIT", "deliver");
        for (native, mask) in [&LONGEST, &SHORT].into_iter().zip(["default", "default,-VCL_return"]) {
            worker.log().set_mask(Mask::default().changed(mask).unwrap());
            let (mut made, mut copied) = (Records::new(worker.log()), Records::new(worker.log()));
            made.begin(7, Kind::Client);
            copied.begin(7, Kind::Client);
            copied.native(native);
            made.text(Tag::VCL_call, native.name.as_bytes());
            made.text(Tag::VCL_return, native.action.as_bytes());
            assert_eq!((made.bytes(), made.mark()), (copied.bytes(), copied.mark()));
        }
        drop(worker);
        let _ = std::fs::remove_dir_all(&path);
    }
}
