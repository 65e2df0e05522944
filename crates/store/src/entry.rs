//! The name of a record on a device, by which it is known also while its object is not in memory.

use std::fmt;

/// Devices that one process can have.
pub const DEVICES_MAX: u32 = 63;

/// Bits of a slot's number.
const SLOT_BITS: u32 = 26;

/// Entries that one device can have: 67 million, which take 4 GiB of memory.
pub const SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// An entry of one of the process's devices: the device's number, and the slot in that device's table. A slot is used
/// again once its entry has ended, so who keeps one must be told of that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry(u32);

impl Entry {
    /// The entry in `slot` of the device number `device`.
    ///
    /// # Panics
    /// If one of them is not below its bound: devices and tables are made within them.
    pub fn new(device: u32, slot: u32) -> Self {
        assert!(device < DEVICES_MAX && slot < SLOTS_MAX, "entry {slot} of device {device} is out of bounds");
        Self(device << SLOT_BITS | slot)
    }

    /// The device's number.
    pub fn device(self) -> u32 {
        self.0 >> SLOT_BITS
    }

    /// The slot in the device's table.
    pub fn slot(self) -> u32 {
        self.0 & (SLOTS_MAX - 1)
    }

    /// As one number, which is never `u32::MAX`.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The entry of that number; `None` of `u32::MAX`.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits != u32::MAX).then_some(Self(bits))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device(), self.slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_and_slot_come_back() {
        for (device, slot) in [(0, 0), (1, 7), (DEVICES_MAX - 1, SLOTS_MAX - 1)] {
            let entry = Entry::new(device, slot);
            assert_eq!((entry.device(), entry.slot()), (device, slot));
            assert_eq!(Entry::from_bits(entry.bits()), Some(entry));
        }
        assert_eq!(Entry::from_bits(u32::MAX), None);
    }
}
