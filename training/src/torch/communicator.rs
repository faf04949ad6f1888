//! Collective operations between processes, over PyTorch's c10d: NCCL on CUDA, Gloo on a CPU.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};

use tch::{Device, Kind, TchError, Tensor, no_grad};
use thiserror::Error;

use super::shim::{Raw, check};

#[repr(C)]
struct RawCommunicator {
    private: [u8; 0],
}

unsafe extern "C" {
    fn shim_group_new(
        host: *const c_char,
        port: c_int,
        serve: c_int,
        rank: c_int,
        world: c_int,
        seconds: c_int,
        nccl: *mut c_void,
        out: *mut *mut RawCommunicator,
    ) -> c_int;
    fn shim_group_all_reduce(group: *mut RawCommunicator, tensor: Raw) -> c_int;
    fn shim_group_all_gather(group: *mut RawCommunicator, output: Raw, input: Raw) -> c_int;
    fn shim_group_reduce_scatter(group: *mut RawCommunicator, output: Raw, input: Raw) -> c_int;
    fn shim_group_free(group: *mut RawCommunicator);
}

const MAX_PROCESSES: usize = 1 << 16;
const TIMEOUT_SECONDS: c_int = 600;

#[derive(Debug, Error)]
pub enum CommunicatorError {
    #[error(
        "the environment variable {name} is {value:?}; it must be a number below {below}, as torchrun and Slurm set it"
    )]
    Environment {
        name: &'static str,
        value: String,
        below: usize,
    },
    #[error("process {rank} of {world} cannot reach the others at {address}: {error}")]
    Rendezvous {
        rank: usize,
        world: usize,
        address: String,
        error: TchError,
    },
    #[error(
        "training on several GPUs needs {path}, which is built only if PyTorch with CUDA's headers is installed"
    )]
    Nccl { path: String },
}

/// The connection of this process to the others of a run.
#[derive(Debug)]
pub struct Communicator {
    raw: *mut RawCommunicator,
    /// Index of this process.
    pub rank: usize,
    /// Number of processes.
    pub world: usize,
    pub device: Device,
}

// SAFETY: c10d's backends are thread-safe. Only the order of calls must be the same in all processes,
// and one step runs on one thread at a time.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

fn number(name: &'static str, default: usize, below: usize) -> Result<usize, CommunicatorError> {
    let Some(value) = env::var_os(name) else {
        return Ok(default);
    };
    let text = value.to_string_lossy();
    match text.trim().parse() {
        Ok(number) if number < below => Ok(number),
        _ => Err(CommunicatorError::Environment {
            name,
            value: text.into_owned(),
            below,
        }),
    }
}

impl Communicator {
    /// Connects as RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT say, and waits for all processes.
    /// `None` for a single process.
    pub fn from_env() -> Result<Option<Self>, CommunicatorError> {
        let world = number("WORLD_SIZE", 1, MAX_PROCESSES)?;
        if world <= 1 {
            return Ok(None);
        }
        let rank = number("RANK", 0, world)?;
        let local = number("LOCAL_RANK", rank, MAX_PROCESSES)?;
        let host = env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
        let port = number("MASTER_PORT", 29500, 1 << 16)?;
        // With this variable torchrun hosts the store itself.
        let external_store =
            env::var_os("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v == "True");
        let (device, nccl) = match tch::Cuda::is_available() {
            true => (Device::Cuda(local), nccl()?),
            false => (Device::Cpu, std::ptr::null_mut()),
        };
        let address = format!("{host}:{port}");
        let rendezvous = |error| CommunicatorError::Rendezvous {
            rank,
            world,
            address: address.clone(),
            error,
        };
        let name = CString::new(host.as_str())
            .map_err(|_| rendezvous(TchError::Torch("MASTER_ADDR contains a zero byte".into())))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `name` outlives the call; `nccl` is null or the function of our own library.
        check(unsafe {
            shim_group_new(
                name.as_ptr(),
                port as c_int,
                c_int::from(rank == 0 && !external_store),
                rank as c_int,
                world as c_int,
                TIMEOUT_SECONDS,
                nccl,
                &mut raw,
            )
        })
        .map_err(rendezvous)?;
        let group = Self {
            raw,
            rank,
            world,
            device,
        };
        group.barrier().map_err(rendezvous)?;
        Ok(Some(group))
    }

    /// Sums a contiguous tensor over all processes, in place.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<(), TchError> {
        // SAFETY: group and tensor are alive.
        check(unsafe { shim_group_all_reduce(self.raw, tensor.as_ptr() as Raw) })
    }

    /// Fills `whole` with the `part` of each process, in order of rank.
    pub fn all_gather(&self, whole: &Tensor, part: &Tensor) -> Result<(), TchError> {
        match self.device {
            // Gloo gathers into a copy.
            Device::Cpu => self.all_gather_chunks(whole, part),
            _ => self.all_gather_once(whole, part),
        }
    }

    fn all_gather_chunks(&self, whole: &Tensor, part: &Tensor) -> Result<(), TchError> {
        let (world, length) = (self.world as i64, part.size()[0]);
        let parts = whole.view([world, length]);
        let chunk = self.chunk_elements();
        let buffer = Tensor::empty([world * chunk.min(length)], (part.kind(), part.device()));
        for start in (0..length).step_by(chunk as usize) {
            let size = chunk.min(length - start);
            let gathered = buffer.narrow(0, 0, world * size);
            self.all_gather_once(&gathered, &part.narrow(0, start, size))?;
            parts
                .narrow(1, start, size)
                .copy_(&gathered.view([world, size]));
        }
        Ok(())
    }

    /// Elements of a shard that one collective operation handles, where it needs a copy of those of all processes.
    pub fn chunk_elements(&self) -> i64 {
        let all = match self.device {
            // Below the size from which libtorch aligns memory to large pages, which fragments it.
            Device::Cpu => 1 << 18,
            _ => 1 << 26,
        };
        (all / self.world as i64).max(1)
    }

    fn all_gather_once(&self, whole: &Tensor, part: &Tensor) -> Result<(), TchError> {
        // SAFETY: group and tensors are alive; c10d checks their sizes.
        check(unsafe {
            shim_group_all_gather(self.raw, whole.as_ptr() as Raw, part.as_ptr() as Raw)
        })
    }

    /// Sums `whole` over all processes and stores the part of this process in `part`.
    pub fn reduce_scatter(&self, part: &Tensor, whole: &Tensor) -> Result<(), TchError> {
        // SAFETY: group and tensors are alive; c10d checks their sizes.
        check(unsafe {
            shim_group_reduce_scatter(self.raw, part.as_ptr() as Raw, whole.as_ptr() as Raw)
        })
    }

    /// Sums numbers over all processes.
    pub fn sum<const N: usize>(&self, numbers: [f64; N]) -> Result<[f64; N], TchError> {
        let tensor = Tensor::from_slice(&numbers).to_device(self.device);
        no_grad(|| self.all_reduce(&tensor))?;
        let sums = Vec::<f64>::try_from(&tensor.to_device(Device::Cpu).to_kind(Kind::Double))?;
        let mut all = [0.0; N];
        all.copy_from_slice(&sums);
        Ok(all)
    }

    /// Waits for all processes.
    pub fn barrier(&self) -> Result<(), TchError> {
        self.sum([0.0]).map(drop)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // SAFETY: made by `shim_group_new`, freed once.
        unsafe { shim_group_free(self.raw) };
    }
}

/// The constructor of the NCCL backend, from a library beside the binary or in the build folder.
fn nccl() -> Result<*mut c_void, CommunicatorError> {
    let built = env!("PYBENCH_NCCL");
    let beside = env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        Some(folder.join("libpybench_nccl.so").display().to_string())
    });
    for path in beside.iter().map(String::as_str).chain([built]) {
        let Ok(name) = CString::new(path) else {
            continue;
        };
        // SAFETY: both names are C strings; the library is our own, and stays open.
        let found = unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            match library.is_null() {
                true => library,
                false => libc::dlsym(library, c"shim_nccl_new".as_ptr()),
            }
        };
        if !found.is_null() {
            return Ok(found);
        }
    }
    Err(CommunicatorError::Nccl { path: built.into() })
}
