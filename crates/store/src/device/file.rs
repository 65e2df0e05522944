//! A device that is a regular file or a block device, read and written by `pread` and `pwrite` through the page cache.

use super::Device;
use super::error::OpenError;
use super::open::{self, OpenOptions, Taken};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSliceMut, Seek as _, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A regular file or a block device. It is locked as long as this value or a copy of its descriptor lives.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: u64,
}

impl FileDevice {
    /// Opens what is at `path`, makes it if it is not there, and takes it for this process alone. `taken` holds what was
    /// opened before, and gets it.
    ///
    /// # Errors
    /// [`OpenError`]. A file that was made for it is removed again.
    pub fn open(path: &Path, options: &OpenOptions, taken: &mut Taken) -> Result<Self, OpenError> {
        let (file, size) = open::open(path, options, taken)?;
        Ok(Self { file, path: path.to_owned(), size })
    }

    /// The device whose descriptor another process opened with [`FileDevice::open`] and handed over, as it was there.
    ///
    /// # Errors
    /// It has less than `size` bytes, or its size cannot be seen.
    pub fn adopt(mut file: File, path: PathBuf, size: u64) -> io::Result<Self> {
        // Says what a block device has, too, where metadata says nothing.
        let found = file.seek(SeekFrom::End(0))?;
        if found < size {
            let text = format!("{}: {found} bytes are left of {size}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Self { file, path, size })
    }

    /// Where it is, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.within(buffer.len(), offset)?;
        // Goes on after a signal and after a part.
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.within(bytes.len(), offset)?;
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn read_ready(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.within(buffer.len(), offset)?;
        let wanted = buffer.len();
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            // A part is in the page cache and the rest is not.
            Ok(count) => Ok(count == wanted),
            Err(error) => match io::Error::from(error) {
                // The last two: a file system without such reads, a kernel without them.
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error if error.kind() == io::ErrorKind::Unsupported => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl FileDevice {
    /// A block device may be larger than what of it is used, and a file may have been made longer by somebody.
    fn within(&self, length: usize, offset: u64) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::super::open::testing::{Folder, options};
    use super::*;

    fn device(folder: &Folder) -> FileDevice {
        FileDevice::open(&folder.path("store"), &options(1 << 20), &mut Taken::default()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = Folder::new();
        let device = device(&folder);
        assert_eq!(device.size(), 1 << 20);
        device.write_at(b"here", (1 << 20) - 4).unwrap();
        device.sync().unwrap();
        let mut buffer = [0; 4];
        device.read_at(&mut buffer, (1 << 20) - 4).unwrap();
        assert_eq!(&buffer, b"here");
        let mut again = [1; 8];
        device.read_at(&mut again, 0).unwrap();
        assert_eq!(again, [0; 8], "a new file is empty");
    }

    #[test]
    fn nothing_is_read_or_written_beyond_the_end() {
        let folder = Folder::new();
        let device = device(&folder);
        for (length, offset) in [(1, 1 << 20), (8, (1 << 20) - 4), (1, u64::MAX), (2 << 20, 0)] {
            let mut buffer = vec![0; length];
            let end = |result: io::Result<bool>| result.unwrap_err().kind() == io::ErrorKind::UnexpectedEof;
            assert!(end(device.read_at(&mut buffer, offset).map(|()| true)), "{length} at {offset}");
            assert!(end(device.write_at(&buffer, offset).map(|()| true)), "{length} at {offset}");
            assert!(end(device.read_ready(&mut buffer, offset)), "{length} at {offset}");
        }
        assert_eq!(std::fs::metadata(folder.path("store")).unwrap().len(), 1 << 20);
    }

    #[test]
    fn what_is_ready_is_what_is_there() {
        let folder = Folder::new();
        let device = device(&folder);
        device.write_at(b"written", 4096).unwrap();
        let mut buffer = [0; 7];
        // Some file systems never say that anything is ready; none may say it of other bytes.
        if device.read_ready(&mut buffer, 4096).unwrap() {
            assert_eq!(&buffer, b"written");
        }
    }

    #[test]
    fn a_descriptor_that_is_handed_over_is_the_same_device() {
        let folder = Folder::new();
        let first = device(&folder);
        first.write_at(b"kept", 0).unwrap();
        let copy = File::from(first.as_fd().try_clone_to_owned().unwrap());
        drop(first);
        let again = FileDevice::open(&folder.path("store"), &options(1 << 20), &mut Taken::default());
        assert!(matches!(again, Err(OpenError::InUse { .. })), "the copy keeps the lock: {again:?}");
        let second = FileDevice::adopt(copy.try_clone().unwrap(), folder.path("store"), 1 << 20).unwrap();
        let mut buffer = [0; 4];
        second.read_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"kept");
        assert_eq!(second.path(), folder.path("store"));
        copy.set_len(1000).unwrap();
        assert!(FileDevice::adopt(copy, folder.path("store"), 1 << 20).is_err());
    }
}
