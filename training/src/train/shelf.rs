//! Where the optimizer's state lies: beside the weights, in main memory, or on a disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tch::{Device, Kind, TchError, Tensor};

use super::recipe::Offload;

/// A place for tensors.
#[derive(Clone, Debug)]
pub(super) enum Shelf {
    /// The memory of a device.
    Memory(Device),
    /// Files without names in a folder, mapped: they vanish with the process.
    Disk(PathBuf),
}

impl Shelf {
    /// Where a recipe wants the state of weights on `device`.
    pub(super) fn new(offload: Option<&Offload>, device: Device) -> Self {
        match offload {
            None => Self::Memory(device),
            Some(Offload::Memory) => Self::Memory(Device::Cpu),
            Some(Offload::Disk(folder)) => Self::Disk(folder.clone()),
        }
    }

    /// The device that computes with what lies here.
    pub(super) fn device(&self) -> Device {
        match self {
            Self::Memory(device) => *device,
            Self::Disk(_) => Device::Cpu,
        }
    }

    /// A flat tensor of zeros.
    pub(super) fn zeros(&self, elements: i64, kind: Kind) -> Result<Tensor, TchError> {
        match self {
            Self::Disk(folder) if elements > 0 => mapped(folder, elements, kind).map_err(|error| {
                TchError::Torch(format!("optimizer.offload, {}: {error}", folder.display()))
            }),
            _ => Tensor::f_zeros([elements], (kind, self.device())),
        }
    }

    /// Says that a tensor from here is not needed for a while: on a disk it leaves this process's
    /// memory, and the kernel writes it out when it wants the room.
    pub(super) fn rest(&self, tensor: &Tensor) {
        if matches!(self, Self::Disk(_)) && tensor.numel() > 0 {
            let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
            // SAFETY: the tensor fills a shared mapping of a file, which begins at a page; its bytes
            // stay in the file, and come back when they are read.
            unsafe { libc::madvise(tensor.data_ptr(), bytes, libc::MADV_DONTNEED) };
        }
    }
}

fn mapped(folder: &Path, elements: i64, kind: Kind) -> io::Result<Tensor> {
    std::fs::create_dir_all(folder)?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    let bytes = elements as usize * kind.elt_size_in_bytes();
    reserve(file.as_file(), bytes)?;
    let path = file.path().to_str();
    let path = path.ok_or_else(|| io::Error::other("the folder's name is not UTF-8"))?;
    Tensor::f_from_file(path, true, elements, (kind, Device::Cpu)).map_err(io::Error::other)
    // The name goes here; the mapping keeps the file.
}

/// Takes the room at once: a disk that fills up later would end the process without a word.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rests_on_a_disk_comes_back_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::Disk(folder.path().join("new"));
        let mut tensor = shelf.zeros(100_000, Kind::Float).unwrap();
        assert_eq!(tensor.sum(Kind::Float).double_value(&[]), 0.0);
        let values = Tensor::arange(100_000, (Kind::Float, Device::Cpu));
        tensor.copy_(&values);
        shelf.rest(&tensor);
        assert!(tensor.equal(&values));
        assert_eq!(folder.path().join("new").read_dir().unwrap().count(), 0);
        assert_eq!(shelf.zeros(0, Kind::Float).unwrap().numel(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let shelf = Shelf::Disk(file.path().join("below"));
        let error = shelf.zeros(10, Kind::Float).unwrap_err().to_string();
        assert!(error.contains("below"), "{error}");
    }
}
