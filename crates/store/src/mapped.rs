//! Reading a body that lies in a file: how a [`Cursor`] comes to bytes that may be looked at.
//!
//! A page of a mapped file that cannot be read ends the process of whoever looks at it, but is only an error (`EFAULT`) to
//! a system call. So a cursor reads the next 64 KiB with `pread` into memory of its own and gives out that, unless its owner
//! has said that all it gets goes to a socket's system call ([`Cursor::give_to_kernel`]).

use crate::body::Extent;
use crate::cursor::{Cursor, Cut};
use crate::object::Object;
use std::io::IoSlice;

/// How much is read at once.
const SIZE: u64 = 64 << 10;

/// What a cursor has read from a file.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Offset in the body of the first byte.
    start: u64,
    bytes: Vec<u8>,
}

impl Copied {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn covers(&self, at: u64) -> bool {
        (self.start..self.end()).contains(&at)
    }
}

impl Cursor {
    /// From now on what [`Cursor::slices`] gives is for system calls alone, which copy it out of the mapped file. Nobody
    /// else may look at it: a page that cannot be read would end the process.
    pub fn give_to_kernel(&mut self) {
        self.for_kernel = true;
    }

    /// A system call could not read what [`Cursor::slices`] gave (`EFAULT`): the file is damaged.
    pub fn report_fault(&self, object: &Object) {
        if let Some(file) = &object.space.file
            && self.for_kernel
        {
            file.damage();
            object.unlink();
        }
    }

    /// Has the bytes under `at` at hand, which are filled and whose extent was found. On an error of the device the object
    /// ends here, so that the next request fetches it anew.
    #[cold]
    pub(crate) fn load(&mut self, object: &Object) -> Result<(), Cut> {
        let Some(file) = &object.space.file else { return Ok(()) };
        let Some(extent) = extent_at(&self.current, object, self.at) else { return Ok(()) };
        if extent.block.file().is_none() {
            // The window of a body that outgrew the file.
            return Ok(());
        }
        if file.is_damaged() {
            object.unlink();
            return Err(Cut::Damaged);
        }
        let at = self.at;
        if self.for_kernel || self.copied.as_ref().is_some_and(|copied| copied.covers(at)) {
            return Ok(());
        }
        let to = (at + SIZE).min(object.filled()).min(self.end).min(extent.end());
        let copied = self.copied.get_or_insert_default();
        copied.bytes.resize((to - at) as usize, 0);
        copied.start = at;
        let read = extent.block.copy_to((at - extent.offset) as usize, &mut copied.bytes);
        read.map_err(|_| {
            self.copied = None;
            object.unlink();
            Cut::Damaged
        })
    }

    /// Appends what was read from the file; false if the bytes under `at` are not to be read from it.
    pub(crate) fn copied_slices<'object>(
        &'object self,
        object: &'object Object,
        out: &mut Vec<IoSlice<'object>>,
    ) -> bool {
        let at = self.at;
        if let Some(copied) = self.copied.as_deref().filter(|copied| copied.covers(at)) {
            let end = copied.end().min(self.end);
            let piece = (at - copied.start) as usize..(end - copied.start) as usize;
            out.push(IoSlice::new(&copied.bytes[piece]));
            return true;
        }
        let extent = extent_at(&self.current, object, at);
        !self.for_kernel && extent.is_none_or(|extent| extent.block.file().is_some())
    }
}

/// The extent that `at` lies in: of a body that is not final, the one that was found.
fn extent_at<'a>(current: &'a Option<Extent>, object: &'a Object, at: u64) -> Option<&'a Extent> {
    match object.sealed() {
        Some(extents) => extents.get(extents.partition_point(|extent| extent.end() <= at)),
        None => current.as_ref(),
    }
}
