//! Memory for blocks of up to nearly 128 KiB, in finer sizes than a general allocator has: a cache is full of small objects, and
//! an allocator with four sizes a doubling would add an eighth to each of them. Here it is a hundredth for blocks of up to
//! 2 KiB, a fortieth up to 16 KiB and a twentieth beyond.
//!
//! ```text
//! slab (64 KiB, 256 KiB or 1 MiB, aligned to its size; all its blocks have one size)
//! +--------+---------+---------+-------- ... --+---------+
//! | header | block 0 | block 1 |               | block n-1
//! +--------+---------+---------+-------- ... --+---------+
//! 0        64        64 + size
//! ```
//!
//! The size of a slab's blocks follows from their count, so that nothing is left over at its end. Counts have six (five,
//! four) significant bits, so neighbouring sizes lie 1.6 to 3 (6, 12) percent apart. A slab whose last block comes back
//! serves any size again. Slabs are cut from regions which stay with the process: what it holds is bounded by the most
//! that was in use at once. The pages of empty slabs go back to the system when that is asked for ([`return_idle`]); their
//! addresses stay. A slab with few blocks left in it is held whole: about one a size, 46 MiB if all sizes occur.
//!
//! Who may touch what: headers and blocks that are free belong to the pool and are touched under its lock only; a block
//! that was given out belongs to its owner alone until it is given back. All memory is initialised: zeroed at first, left
//! as it was afterwards.
#![allow(unsafe_code)]

use parking_lot::Mutex;
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};

/// The largest block that comes from slabs: eight in one of 1 MiB, beside its header.
pub(crate) const LARGEST: usize = (128 << 10) - 64;

/// Every block begins at a multiple of this.
pub(crate) const ALIGNMENT: usize = 16;

/// Blocks of at least [`LINE_MIN`] bytes begin at a multiple of a cache line: the kernel copies bodies out of them, which
/// takes half as long again if source lines are split.
pub(crate) const LINE: usize = 64;

/// See [`LINE`]. Below this the bytes that aligning takes weigh more.
pub(crate) const LINE_MIN: usize = 2048;

/// What a block of `size` bytes begins at a multiple of.
const fn alignment(size: usize) -> usize {
    if size >= LINE_MIN { LINE } else { ALIGNMENT }
}

/// The smallest block.
const SMALLEST: usize = 64;

/// Bytes before a slab's first block.
const HEADER_SIZE: usize = 64;

/// What is asked from the system at once.
const REGION: usize = 4 << 20;

/// The sum of what the pools hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pooled {
    /// Bytes of all slabs that were ever cut.
    pub slabs: u64,
    /// Bytes of the slabs that hold no block at present; part of `slabs`.
    pub idle: u64,
    /// Bytes of these whose pages went back to the system; part of `idle`.
    pub returned: u64,
    /// Bytes of the blocks given out, rounded up to their size.
    pub blocks: u64,
}

/// The first bytes of a slab.
#[repr(C)]
struct Header {
    next: *mut Header,
    previous: *mut Header,
    /// Blocks of a slab like this.
    count: u32,
    /// Blocks given out.
    used: u32,
    /// Blocks that were ever given out; those above are untouched.
    touched: u32,
    /// The first free block plus one, 0 if there is none; a free block begins with the next one's number in this form.
    free: u32,
}

const _: () = assert!(size_of::<Header>() <= HEADER_SIZE && HEADER_SIZE.is_multiple_of(ALIGNMENT));

/// Regions are aligned to this, which all slab sizes divide.
const HUGE_PAGE: usize = 2 << 20;

/// All slabs of one size.
struct Pool {
    slab_size: usize,
    /// Significant bits of the count of a slab's blocks.
    precision: u32,
    /// Slabs with room, by the count of their blocks.
    with_room: Vec<*mut Header>,
    /// Slabs without a block, linked by `next`.
    idle: *mut Header,
    /// As `idle`, without pages but the first.
    returned: *mut Header,
    /// The part of the newest region that is not cut yet.
    fresh: *mut u8,
    fresh_slabs: usize,
    slabs: usize,
    idle_slabs: usize,
    returned_slabs: usize,
    block_bytes: usize,
}

// SAFETY: the pointers lead to memory that only the pool touches, as told in the module.
unsafe impl Send for Pool {}

static POOLS: [Mutex<Pool>; 3] = [
    Mutex::new(Pool::new(64 << 10, 6)),
    Mutex::new(Pool::new(256 << 10, 5)),
    Mutex::new(Pool::new(1 << 20, 4)),
];

/// The pool for blocks of `size` bytes, at most [`LARGEST`].
fn pool_of(size: usize) -> &'static Mutex<Pool> {
    match size {
        0..=2_048 => &POOLS[0],
        2_049..=16_384 => &POOLS[1],
        _ => &POOLS[2],
    }
}

/// A block of at least `size` bytes. The process ends if the machine has no memory left, as with any allocation.
///
/// # Panics
/// If `size` is above [`LARGEST`].
pub(crate) fn take(size: usize) -> NonNull<u8> {
    assert!(size <= LARGEST, "a block of {size} bytes does not come from slabs");
    pool_of(size).lock().take(size)
}

/// Takes a block back.
///
/// # Safety
/// `block` came from [`take`] with this `size`, and nobody uses it any more.
pub(crate) unsafe fn give_back(block: NonNull<u8>, size: usize) {
    // SAFETY: passed on to the caller.
    unsafe { pool_of(size).lock().give_back(block) }
}

/// What all pools of the process hold.
pub fn pooled() -> Pooled {
    let mut sum = Pooled::default();
    for pool in &POOLS {
        let pool = pool.lock();
        sum.slabs += (pool.slabs * pool.slab_size) as u64;
        sum.idle += ((pool.idle_slabs + pool.returned_slabs) * pool.slab_size) as u64;
        sum.returned += (pool.returned_slabs * pool.slab_size) as u64;
        sum.blocks += pool.block_bytes as u64;
    }
    sum
}

/// A page of memory, or a part of one.
const PAGE: usize = 4096;

/// Gives the pages of slabs that hold no block back to the system, all but the first of each, and tells how many bytes these
/// are. A thread that wants a block meanwhile waits for no call to the system.
pub fn return_idle() -> u64 {
    let mut bytes = 0;
    for pool in &POOLS {
        loop {
            let (slab, slab_size) = {
                let mut pool = pool.lock();
                let Some(slab) = pool.pop_idle() else { break };
                (slab, pool.slab_size)
            };
            // SAFETY: nobody has a block of the slab and no list has it: it is ours alone. The first page, with its header,
            // stays. What the pages held is of no meaning; they read as zeros when they are touched again. An error (of a
            // machine with larger pages) leaves them as they are.
            unsafe {
                let pages = slab.cast::<u8>().add(PAGE);
                libc::madvise(pages.cast(), slab_size - PAGE, libc::MADV_DONTNEED);
            }
            bytes += (slab_size - PAGE) as u64;
            pool.lock().push_returned(slab);
        }
    }
    bytes
}

/// How many blocks of at least `size` bytes a slab is divided into.
fn count_for(slab_size: usize, precision: u32, size: usize) -> usize {
    let size = size.max(SMALLEST);
    let size = size.next_multiple_of(alignment(size));
    let count = (slab_size - HEADER_SIZE) / size;
    let dropped_bits = count.ilog2().saturating_sub(precision - 1);
    count >> dropped_bits << dropped_bits
}

/// How large the blocks of a slab of `count` are.
fn block_size(slab_size: usize, count: usize) -> usize {
    let size = (slab_size - HEADER_SIZE) / count;
    size / alignment(size) * alignment(size)
}

impl Pool {
    const fn new(slab_size: usize, precision: u32) -> Self {
        Self {
            slab_size,
            precision,
            with_room: Vec::new(),
            idle: null_mut(),
            returned: null_mut(),
            fresh: null_mut(),
            fresh_slabs: 0,
            slabs: 0,
            idle_slabs: 0,
            returned_slabs: 0,
            block_bytes: 0,
        }
    }

    fn take(&mut self, size: usize) -> NonNull<u8> {
        let count = count_for(self.slab_size, self.precision, size);
        if self.with_room.len() <= count {
            self.with_room.resize(count + 1, null_mut());
        }
        if self.with_room[count].is_null() {
            let slab = self.empty_slab();
            let header = Header {
                next: null_mut(),
                previous: null_mut(),
                count: count as u32,
                used: 0,
                touched: 0,
                free: 0,
            };
            // SAFETY: the slab is empty and belongs to the pool; its start is aligned to its size.
            unsafe { slab.write(header) };
            self.link(slab);
        }
        let slab = self.with_room[count];
        let block_size = block_size(self.slab_size, count);
        self.block_bytes += block_size;
        // SAFETY: a slab in `with_room` has a free or an untouched block, and we hold the lock.
        unsafe {
            let index = if (*slab).free == 0 {
                (*slab).touched += 1;
                (*slab).touched - 1
            } else {
                (*slab).free - 1
            };
            let block = slab.cast::<u8>().add(HEADER_SIZE + index as usize * block_size);
            if (*slab).free != 0 {
                (*slab).free = block.cast::<u32>().read();
            }
            (*slab).used += 1;
            if (*slab).used == (*slab).count {
                self.unlink(slab);
            }
            NonNull::new_unchecked(block)
        }
    }

    /// # Safety
    /// `block` was given out by this pool and is not used any more.
    unsafe fn give_back(&mut self, block: NonNull<u8>) {
        let block = block.as_ptr();
        let slab = block.map_addr(|address| address & !(self.slab_size - 1)).cast::<Header>();
        // SAFETY: slabs are aligned to their size, so this is the header of the slab that `block` was cut from; the
        // pointer keeps the region's provenance. The block is ours again, and we hold the lock.
        unsafe {
            let block_size = block_size(self.slab_size, (*slab).count as usize);
            self.block_bytes -= block_size;
            let offset = block.addr() - slab.addr() - HEADER_SIZE;
            debug_assert!(offset.is_multiple_of(block_size) && (*slab).used > 0, "a block of another slab");
            block.cast::<u32>().write((*slab).free);
            (*slab).free = (offset / block_size) as u32 + 1;
            if (*slab).used == (*slab).count {
                self.link(slab);
            }
            (*slab).used -= 1;
            if (*slab).used == 0 {
                self.unlink(slab);
                (*slab).next = self.idle;
                self.idle = slab;
                self.idle_slabs += 1;
            }
        }
    }

    fn empty_slab(&mut self) -> *mut Header {
        if !self.idle.is_null() {
            let slab = self.idle;
            // SAFETY: an idle slab has a valid header, which only the pool touches.
            self.idle = unsafe { (*slab).next };
            self.idle_slabs -= 1;
            return slab;
        }
        if !self.returned.is_null() {
            let slab = self.returned;
            // SAFETY: as above: the first page of it stayed.
            self.returned = unsafe { (*slab).next };
            self.returned_slabs -= 1;
            return slab;
        }
        if self.fresh_slabs == 0 {
            self.add_region();
        }
        let slab = self.fresh;
        self.fresh_slabs -= 1;
        self.slabs += 1;
        if self.fresh_slabs > 0 {
            // SAFETY: another slab follows in the region.
            self.fresh = unsafe { slab.add(self.slab_size) };
        }
        slab.cast()
    }

    /// Takes a slab without a block off its list.
    fn pop_idle(&mut self) -> Option<*mut Header> {
        if self.idle.is_null() {
            return None;
        }
        let slab = self.idle;
        // SAFETY: as in `empty_slab`.
        self.idle = unsafe { (*slab).next };
        self.idle_slabs -= 1;
        Some(slab)
    }

    /// Takes in such a slab without its pages.
    fn push_returned(&mut self, slab: *mut Header) {
        // SAFETY: the slab is the pool's, and no list has it.
        unsafe { (*slab).next = self.returned };
        self.returned = slab;
        self.returned_slabs += 1;
    }

    /// Asks for more memory, from the system itself: a general allocator would round it up, and zero it once more. In
    /// pages of 2 MiB where it has them: memory here is used densely, and a cache touches much of it at random.
    fn add_region(&mut self) {
        // SAFETY: a new private mapping at no given place; the answer is checked.
        let mapping = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(null_mut(), REGION + HUGE_PAGE, access, kind, -1, 0)
        };
        if mapping == libc::MAP_FAILED {
            handle_alloc_error(
                Layout::from_size_align(REGION, ALIGNMENT).expect("a few MiB are a valid layout"),
            );
        }
        let mapping = mapping.cast::<u8>();
        let before = mapping.addr().next_multiple_of(HUGE_PAGE) - mapping.addr();
        let after = HUGE_PAGE - before;
        // SAFETY: of the mapping, `before` bytes lie in front of the first place that is aligned and `after` bytes behind
        // the region. Both are whole pages, and nobody uses them; if they are not taken back that costs addresses only.
        // The advice changes no content.
        unsafe {
            self.fresh = mapping.add(before);
            if before > 0 {
                libc::munmap(mapping.cast(), before);
            }
            libc::munmap(self.fresh.add(REGION).cast(), after);
            libc::madvise(self.fresh.cast(), REGION, libc::MADV_HUGEPAGE);
        }
        self.fresh_slabs = REGION / self.slab_size;
    }

    /// Puts a slab in front of those with room.
    fn link(&mut self, slab: *mut Header) {
        // SAFETY: headers of linked slabs are valid and only touched under the lock.
        unsafe {
            let first = &mut self.with_room[(*slab).count as usize];
            (*slab).next = *first;
            (*slab).previous = null_mut();
            if !first.is_null() {
                (**first).previous = slab;
            }
            *first = slab;
        }
    }

    fn unlink(&mut self, slab: *mut Header) {
        // SAFETY: as for `link`.
        unsafe {
            let (next, previous) = ((*slab).next, (*slab).previous);
            if previous.is_null() {
                self.with_room[(*slab).count as usize] = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sizes_lie_close_together() {
        for (slab, precision, from, to, worst) in [
            (64 << 10, 6, 256, 2_048, 4),
            (256 << 10, 5, 2_049, 16_384, 7),
            (1 << 20, 4, 16_385, LARGEST, 15),
        ] {
            let (mut asked, mut wasted) = (0, 0);
            for size in from..=to {
                let got = block_size(slab, count_for(slab, precision, size));
                assert!(got >= size, "{size}: {got}");
                let allowed = size * worst / 100 + ALIGNMENT;
                assert!(got - size <= allowed, "{size}: {got}");
                asked += size;
                wasted += got - size;
            }
            assert!(wasted * 100 / asked <= worst / 2, "{slab}: {wasted} of {asked}");
        }
        for size in 0..256 {
            let got = block_size(64 << 10, count_for(64 << 10, 6, size));
            assert!(got >= size && got <= size.max(64) + 32, "{size}: {got}");
        }
        assert_eq!(block_size(1 << 20, count_for(1 << 20, 4, LARGEST)), LARGEST);
    }

    #[test]
    fn blocks_are_apart_and_come_back() {
        let mut pool = Pool::new(64 << 10, 6);
        let mut taken: Vec<(NonNull<u8>, usize)> = Vec::new();
        for round in 0..3 {
            let mut ranges = Vec::new();
            for index in 0..200_usize {
                let size = 64 + (index * 37 + round * 11) % 1_900;
                let block = pool.take(size);
                // SAFETY: the block is ours and that large.
                unsafe { block.write_bytes(index as u8, size) };
                ranges.push((block.addr().get(), size));
                taken.push((block, size));
            }
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "blocks overlap");
            assert!(ranges.iter().all(|(start, _)| start % ALIGNMENT == 0));
            // Every second one comes back now, the others after the round.
            let (now, later): (Vec<_>, Vec<_>) =
                taken.drain(..).enumerate().partition(|(index, _)| index % 2 == 0);
            for (_, (block, _)) in now.into_iter().chain(later) {
                // SAFETY: taken above, not used any more.
                unsafe { pool.give_back(block) };
            }
            assert_eq!(pool.block_bytes, 0);
            assert_eq!(pool.idle_slabs, pool.slabs);
        }
    }

    #[test]
    fn a_full_slab_is_followed_by_another_and_reused_first_when_freed() {
        let mut pool = Pool::new(64 << 10, 6);
        let count = count_for(64 << 10, 6, 2_048);
        let blocks: Vec<_> = (0..=count).map(|_| pool.take(2_048)).collect();
        assert_eq!(pool.slabs, 2);
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), count + 1);
        // SAFETY: taken above.
        unsafe { pool.give_back(blocks[0]) };
        assert_eq!(pool.take(2_048), blocks[0]);
        for block in &blocks {
            // SAFETY: taken above.
            unsafe { pool.give_back(*block) };
        }
        assert_eq!((pool.idle_slabs, pool.slabs), (2, 2));
        let other_size = pool.take(100);
        assert_eq!(pool.slabs, 2, "an idle slab serves any size");
        // SAFETY: taken above.
        unsafe { pool.give_back(other_size) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "gives pages back to the system")]
    fn slabs_without_pages_serve_again() {
        let size = LARGEST;
        let blocks: Vec<_> = (0..32).map(|_| take(size)).collect();
        for block in blocks {
            // SAFETY: taken above, of that size.
            unsafe {
                block.write_bytes(7, size);
                give_back(block, size);
            }
        }
        return_idle();
        let blocks: Vec<_> = (0..32).map(|_| take(size)).collect();
        for block in blocks {
            // SAFETY: as above.
            unsafe {
                block.write_bytes(9, size);
                assert_eq!(block.add(size - 1).read(), 9);
                give_back(block, size);
            }
        }
        let pooled = pooled();
        assert!(pooled.returned <= pooled.idle && pooled.idle <= pooled.slabs, "{pooled:?}");
    }
}
