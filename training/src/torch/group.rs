//! Processes that train one model together, over PyTorch's c10d: NCCL on CUDA, Gloo on a CPU.

use std::env;
use std::ffi::{CString, c_char, c_int, c_void};

use tch::{Device, Kind, TchError, Tensor, no_grad};
use thiserror::Error;

use super::shim::{Raw, check};

#[repr(C)]
struct RawGroup {
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
        out: *mut *mut RawGroup,
    ) -> c_int;
    fn shim_group_all_reduce(group: *mut RawGroup, tensor: Raw) -> c_int;
    fn shim_group_all_gather(group: *mut RawGroup, output: Raw, input: Raw) -> c_int;
    fn shim_group_reduce_scatter(group: *mut RawGroup, output: Raw, input: Raw) -> c_int;
    fn shim_group_free(group: *mut RawGroup);
}

/// Most processes of one run.
const MOST: usize = 1 << 16;
/// Seconds that one process waits for the others.
const PATIENCE: c_int = 600;

/// Why processes cannot work together.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum GroupError {
    #[error("{name} = {value:?} is not a number below {below}; torchrun and Slurm set it")]
    Environment {
        name: &'static str,
        value: String,
        below: usize,
    },
    #[error("process {rank} of {world} does not reach the others at {address}: {error}")]
    Meeting {
        rank: usize,
        world: usize,
        address: String,
        error: TchError,
    },
    #[error(
        "several GPUs need {path}, which is built where PyTorch is installed with CUDA's headers"
    )]
    Nccl { path: String },
}

/// This process among those of a run.
#[derive(Debug)]
pub struct Group {
    raw: *mut RawGroup,
    /// Number of this process, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// The device of this process.
    pub device: Device,
}

// SAFETY: c10d's backends lock for themselves; only the order of calls must be the same everywhere,
// and one step runs on one thread at a time.
unsafe impl Send for Group {}
// SAFETY: as above.
unsafe impl Sync for Group {}

fn number(name: &'static str, default: usize, below: usize) -> Result<usize, GroupError> {
    let Some(value) = env::var_os(name) else {
        return Ok(default);
    };
    let text = value.to_string_lossy();
    match text.trim().parse() {
        Ok(number) if number < below => Ok(number),
        _ => Err(GroupError::Environment {
            name,
            value: text.into_owned(),
            below,
        }),
    }
}

impl Group {
    /// The group that RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT tell of; `None`
    /// where there is but one process. Waits until all have come.
    pub fn from_env() -> Result<Option<Self>, GroupError> {
        let world = number("WORLD_SIZE", 1, MOST)?;
        if world <= 1 {
            return Ok(None);
        }
        let rank = number("RANK", 0, world)?;
        let local = number("LOCAL_RANK", rank, MOST)?;
        let host = env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
        let port = number("MASTER_PORT", 29500, 1 << 16)?;
        // torchrun keeps the store in its own process and says so.
        let elsewhere = env::var_os("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|v| v == "True");
        let (device, nccl) = match tch::Cuda::is_available() {
            true => (Device::Cuda(local), nccl()?),
            false => (Device::Cpu, std::ptr::null_mut()),
        };
        let address = format!("{host}:{port}");
        let meeting = |error| GroupError::Meeting {
            rank,
            world,
            address: address.clone(),
            error,
        };
        let name = CString::new(host.as_str())
            .map_err(|_| meeting(TchError::Torch("MASTER_ADDR holds a zero byte".into())))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `name` outlives the call; `nccl` is null or the function of our own library.
        check(unsafe {
            shim_group_new(
                name.as_ptr(),
                port as c_int,
                c_int::from(rank == 0 && !elsewhere),
                rank as c_int,
                world as c_int,
                PATIENCE,
                nccl,
                &mut raw,
            )
        })
        .map_err(meeting)?;
        let group = Self {
            raw,
            rank,
            world,
            device,
        };
        group.barrier().map_err(meeting)?;
        Ok(Some(group))
    }

    /// Sums a contiguous tensor over all processes, in place.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<(), TchError> {
        // SAFETY: group and tensor are alive.
        check(unsafe { shim_group_all_reduce(self.raw, tensor.as_ptr() as Raw) })
    }

    /// Fills `whole` with the `part`s of all processes in their order.
    pub fn all_gather(&self, whole: &Tensor, part: &Tensor) -> Result<(), TchError> {
        // SAFETY: group and tensors are alive; c10d checks their sizes.
        check(unsafe {
            shim_group_all_gather(self.raw, whole.as_ptr() as Raw, part.as_ptr() as Raw)
        })
    }

    /// Sums `whole` over all processes and leaves this one's part of the sum in `part`.
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

    /// Waits for all.
    pub fn barrier(&self) -> Result<(), TchError> {
        self.sum([0.0]).map(drop)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: made by `shim_group_new`, freed once.
        unsafe { shim_group_free(self.raw) };
    }
}

/// The function that makes NCCL's backend, from a library beside the binary or where it was built.
fn nccl() -> Result<*mut c_void, GroupError> {
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
    Err(GroupError::Nccl { path: built.into() })
}
