//! A device in memory for tests: it remembers what was synced, gives every image that a crash could leave, and fails
//! when it is told to.

use super::Device;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;

/// What survives a crash, or does not, as one.
const SECTOR: usize = 512;

/// A small source of chance: the same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Begins with `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of 64 random bits (SplitMix64, Steele and others, OOPSLA 2014).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Yes in one of `n` cases.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What goes wrong, once it is injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Reads that touch these bytes give EIO.
    Read(Range<u64>),
    /// After that many more writes, all give this error; the first of them has written a part of its sectors.
    Write {
        /// Writes that still succeed.
        after: u64,
        /// The error.
        kind: io::ErrorKind,
    },
    /// After that many more syncs, all give EIO.
    Sync {
        /// Syncs that still succeed.
        after: u64,
    },
}

#[derive(Default)]
struct State {
    /// As it would be after a crash in which all unsynced writes are lost.
    durable: Vec<u8>,
    /// As it is read.
    current: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<(usize, Vec<u8>)>,
    faults: Vec<Fault>,
    crash_after: Option<(u64, Chance)>,
    crashed: Option<Vec<u8>>,
}

impl State {
    /// An image that a crash now could leave.
    fn crash(&self, chance: &mut Chance) -> Vec<u8> {
        let mut image = self.durable.clone();
        let way = chance.below(7);
        let kept = chance.below(self.unsynced.len() as u64 + 1) as usize;
        for (at, (offset, bytes)) in self.unsynced.iter().enumerate() {
            // All lost; all there; those before some moment; whole writes, pages or sectors by chance.
            let (whole, piece) = match way {
                0 => (Some(false), bytes.len()),
                1 => (Some(true), bytes.len()),
                2 => (Some(at < kept), bytes.len()),
                3 => (None, bytes.len()),
                4 | 5 => (None, 8 * SECTOR),
                _ => (None, SECTOR),
            };
            for (number, part) in (0..).zip(bytes.chunks(piece.max(1))) {
                if whole.unwrap_or_else(|| chance.one_in(2)) {
                    let from = offset + number * piece;
                    image[from..from + part.len()].copy_from_slice(part);
                }
            }
        }
        image
    }

    /// Counts a write or a sync towards the crash that was asked for.
    fn count(&mut self) {
        match self.crash_after.take() {
            Some((0, mut chance)) => self.crashed = Some(self.crash(&mut chance)),
            Some((after, chance)) => self.crash_after = Some((after - 1, chance)),
            None => {}
        }
    }
}

/// See the module.
pub struct SimDevice {
    state: Mutex<State>,
    size: u64,
}

impl SimDevice {
    /// A device of zeros.
    pub fn new(size: usize) -> Self {
        Self::with_image(vec![0; size])
    }

    /// A device with these bytes, all durable.
    pub fn with_image(image: Vec<u8>) -> Self {
        let size = image.len() as u64;
        let state = State { durable: image.clone(), current: image, ..State::default() };
        Self { state: Mutex::new(state), size }
    }

    /// Has something go wrong from now on.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Changes one bit, durably.
    pub fn flip(&self, byte: usize, bit: u8) {
        let mut state = self.state.lock();
        state.current[byte] ^= 1 << (bit % 8);
        state.durable[byte] ^= 1 << (bit % 8);
    }

    /// What can be read now.
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().current.clone()
    }

    /// An image that a crash now could leave: of what was not synced, each sector is as it was durable, or as any of the
    /// writes since left it.
    pub fn crash(&self, chance: &mut Chance) -> Vec<u8> {
        self.state.lock().crash(chance)
    }

    /// Takes such an image in the middle of things: after that many more writes and syncs, just after the write, just
    /// before the sync. The device goes on as if nothing had been.
    pub fn crash_after(&self, operations: u64, chance: Chance) {
        let mut state = self.state.lock();
        state.crash_after = Some((operations, chance));
        state.crashed = None;
    }

    /// The image that was [asked for](Self::crash_after), once it was taken; if not, it is no longer asked for.
    pub fn crashed(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state.crash_after = None;
        state.crashed.take()
    }

    /// Whether that image was taken.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed.is_some()
    }
}

fn error(kind: io::ErrorKind) -> io::Error {
    match kind {
        io::ErrorKind::Other => io::Error::from_raw_os_error(libc::EIO),
        kind => kind.into(),
    }
}

/// The place of some bytes in the device.
fn range(offset: u64, length: usize, size: u64) -> io::Result<Range<usize>> {
    let end =
        offset.checked_add(length as u64).filter(|end| *end <= size).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(offset as usize..end as usize)
}

impl Device for SimDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let place = range(offset, buffer.len(), self.size)?;
        let state = self.state.lock();
        let is_bad = |fault: &Fault| matches!(fault, Fault::Read(bad) if bad.start < place.end as u64 && (place.start as u64) < bad.end);
        if state.faults.iter().any(is_bad) {
            return Err(error(io::ErrorKind::Other));
        }
        buffer.copy_from_slice(&state.current[place]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let place = range(offset, bytes.len(), self.size)?;
        assert!(
            place.start.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR),
            "writes are whole sectors"
        );
        let state = &mut *self.state.lock();
        for fault in &mut state.faults {
            if let Fault::Write { after, kind } = fault {
                if *after == 0 {
                    let part = bytes.len() / SECTOR / 2 * SECTOR;
                    let place = place.start..place.start + part;
                    state.current[place.clone()].copy_from_slice(&bytes[..part]);
                    state.unsynced.push((place.start, bytes[..part].to_vec()));
                    return Err(error(*kind));
                }
                *after -= 1;
            }
        }
        state.current[place.clone()].copy_from_slice(bytes);
        state.unsynced.push((place.start, bytes.to_vec()));
        state.count();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.count();
        for fault in &mut state.faults {
            if let Fault::Sync { after } = fault {
                if *after == 0 {
                    return Err(error(io::ErrorKind::Other));
                }
                *after -= 1;
            }
        }
        for (offset, bytes) in std::mem::take(&mut state.unsynced) {
            state.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_may() {
        let device = SimDevice::new(4096);
        device.write_at(&[1; 1024], 0).expect("it works");
        device.sync().expect("it works");
        device.write_at(&[2; 1024], 512).expect("it works");
        let mut chance = Chance::new(1);
        let images: Vec<_> = (0..100).map(|_| device.crash(&mut chance)).collect();
        assert!(images.iter().all(|image| image[..512] == [1; 512] && image[1536..] == [0; 2560]));
        let seen = |first: u8, second: u8| {
            images.iter().any(|image| image[512..1024] == [first; 512] && image[1024..1536] == [second; 512])
        };
        assert!(seen(1, 0) && seen(2, 2) && seen(1, 2) && seen(2, 0));
    }

    #[test]
    fn a_crash_can_be_in_the_middle() {
        let device = SimDevice::new(4096);
        device.crash_after(1, Chance::new(1));
        device.write_at(&[1; 512], 0).expect("it works");
        assert!(!device.has_crashed());
        device.sync().expect("it works");
        device.write_at(&[2; 512], 512).expect("it works");
        device.sync().expect("it works");
        let image = device.crashed().expect("it was taken before the first sync");
        assert_eq!(image[512..], [0; 3584]);
        assert_eq!(device.crashed(), None);
    }

    #[test]
    fn faults_come_when_they_are_due() {
        let device = SimDevice::new(4096);
        device.inject(Fault::Read(1000..1001));
        assert!(device.read_at(&mut [0; 512], 0).is_ok());
        assert!(device.read_at(&mut [0; 512], 512).is_err());
        assert!(device.read_at(&mut [0; 512], 4000).is_err());
        device.inject(Fault::Write { after: 1, kind: io::ErrorKind::StorageFull });
        assert!(device.write_at(&[3; 1024], 0).is_ok());
        let refused = device.write_at(&[4; 1024], 2048).expect_err("it is due");
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!((device.image()[2048], device.image()[2560]), (4, 0));
        device.inject(Fault::Sync { after: 0 });
        assert!(device.sync().is_err());
    }
}
