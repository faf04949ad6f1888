//! Storage of the optimizer state: on the device of the weights, in main memory, or on disk.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tch::{Device, Kind, TchError, Tensor};

use super::recipe::Offload;

#[derive(Clone, Debug)]
pub(super) enum StateOffload {
    Memory(Device),
    /// Memory-mapped unnamed files in a folder; they disappear with the process.
    Disk(PathBuf),
}

impl StateOffload {
    pub(super) fn new(offload: Option<&Offload>, device: Device) -> Self {
        match offload {
            None => Self::Memory(device),
            Some(Offload::Cpu) => Self::Memory(Device::Cpu),
            Some(Offload::Disk(folder)) => Self::Disk(folder.clone()),
        }
    }

    /// The device that updates the state.
    pub(super) fn device(&self) -> Device {
        match self {
            Self::Memory(device) => *device,
            Self::Disk(_) => Device::Cpu,
        }
    }

    pub(super) fn zeros(&self, elements: i64, kind: Kind) -> Result<Tensor, TchError> {
        match self {
            Self::Disk(folder) if elements > 0 => {
                map_file(folder, elements, kind).map_err(|error| {
                    TchError::Torch(format!("optimizer.offload, {}: {error}", folder.display()))
                })
            }
            _ => Tensor::f_zeros([elements], (kind, self.device())),
        }
    }

    /// Removes a tensor on disk from the memory of this process until it is used again.
    pub(super) fn page_out(&self, tensor: &Tensor) {
        if matches!(self, Self::Disk(_)) && tensor.numel() > 0 {
            let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
            // SAFETY: the tensor fills a shared mapping of a file, which starts at a page boundary. The
            // kernel writes the data to the file and reads it again on access.
            unsafe { libc::madvise(tensor.data_ptr(), bytes, libc::MADV_DONTNEED) };
        }
    }
}

fn map_file(folder: &Path, elements: i64, kind: Kind) -> io::Result<Tensor> {
    std::fs::create_dir_all(folder)?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    let bytes = elements as usize * kind.elt_size_in_bytes();
    reserve(file.as_file(), bytes)?;
    let path = file.path().to_str();
    let path = path.ok_or_else(|| io::Error::other("the name of the folder is not UTF-8"))?;
    Tensor::f_from_file(path, true, elements, (kind, Device::Cpu)).map_err(io::Error::other)
    // The file name is removed here; the mapping keeps the data.
}

/// Allocates the disk space now: a full disk later would kill the process with SIGBUS.
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
    fn paged_out_tensors_are_read_back_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let offload = StateOffload::Disk(folder.path().join("new"));
        let mut tensor = offload.zeros(100_000, Kind::Float).unwrap();
        assert_eq!(tensor.sum(Kind::Float).double_value(&[]), 0.0);
        let values = Tensor::arange(100_000, (Kind::Float, Device::Cpu));
        tensor.copy_(&values);
        offload.page_out(&tensor);
        assert!(tensor.equal(&values));
        assert_eq!(folder.path().join("new").read_dir().unwrap().count(), 0);
        assert_eq!(offload.zeros(0, Kind::Float).unwrap().numel(), 0);
    }

    #[test]
    fn an_unusable_folder_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let offload = StateOffload::Disk(file.path().join("below"));
        let error = offload.zeros(10, Kind::Float).unwrap_err().to_string();
        assert!(error.contains("below"), "{error}");
    }
}
