//! Settings of the memory allocator, and what it has allocated on a GPU.

use std::ffi::{c_int, c_void};

use tch::{Device, Tensor};

use super::shim::check;

unsafe extern "C" {
    fn shim_device_memory(device: c_int, total: *mut i64, peak: *mut i64) -> c_int;
    fn shim_reset_device_peak(device: c_int) -> c_int;
    fn shim_release_device_memory() -> c_int;
    fn shim_pin(start: *mut c_void, bytes: usize) -> c_int;
    fn shim_unpin(start: *mut c_void);
}

/// Memory of a GPU in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    pub total: u64,
    /// The most in use since the start or [`reset_device_peak`], by libtorch's allocator and by all else on the GPU.
    pub peak: u64,
}

/// `None` for a CPU, or if libtorch cannot tell.
pub fn device_memory(device: Device) -> Option<DeviceMemory> {
    let Device::Cuda(number) = device else {
        return None;
    };
    let (mut total, mut peak) = (0, 0);
    // SAFETY: both numbers outlive the call; the shim catches all exceptions.
    check(unsafe { shim_device_memory(number as c_int, &mut total, &mut peak) }).ok()?;
    Some(DeviceMemory {
        total: u64::try_from(total).ok()?,
        peak: u64::try_from(peak).ok()?,
    })
}

/// Lets the peak of a GPU start again from the present memory; does nothing on a CPU.
pub fn reset_device_peak(device: Device) {
    if let Device::Cuda(number) = device {
        // SAFETY: the shim catches all exceptions. If it fails, the peak is that of an earlier phase.
        let _ = unsafe { shim_reset_device_peak(number as c_int) };
    }
}

/// Smaller tensors may share pages, which can be locked only once.
const MIN_PINNED: usize = 1 << 20;

/// Locks the main memory of a tensor while it exists, so that GPUs copy from and to it several times as fast. It must
/// be dropped before the tensor's storage is.
#[derive(Debug)]
pub(crate) struct PinnedMemory(*mut c_void);

// SAFETY: the pointer is only an address; the driver's functions may be called on any thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// `None` if there is no GPU that runs kernels, if the tensor is small or not in main memory, or if the system
    /// does not lock so much.
    pub(crate) fn lock(tensor: &Tensor) -> Option<Self> {
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        if tensor.device() != Device::Cpu || !tensor.is_contiguous() || bytes < MIN_PINNED {
            return None;
        }
        let start = tensor.data_ptr();
        // SAFETY: the range is the storage of a living tensor.
        (unsafe { shim_pin(start, bytes) } != 0).then_some(Self(start))
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: the range was locked by `lock` and has not been freed.
        unsafe { shim_unpin(self.0) };
    }
}

/// Gives freed memory of a GPU back to its driver; does nothing on a CPU.
pub fn release_device_memory(device: Device) {
    if device.is_cuda() {
        // SAFETY: no arguments; the shim catches all exceptions. If it fails, libtorch keeps the memory.
        let _ = unsafe { shim_release_device_memory() };
    }
}

/// Gives freed memory back to the system. Between steps it stays; what loading and packing freed is not needed again.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// From this size on a tensor has pages of its own, which return to the system when it is freed. Tensors that are smaller
/// share a heap, where what is freed in one step is not always a place for as large a tensor in the next.
const LARGE_TENSOR: c_int = 32 << 20;

/// Keeps freed memory in this process and asks for large pages. Tensors are allocated and freed in every step, and new
/// pages from the kernel cost more than the computation on them, except for the largest ones: gradients of an
/// embedding. Must run before other threads start.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt accepts these parameters at any time. No other thread runs yet that could read the
    // environment. libtorch uses large pages if that variable is set.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_TENSOR);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        std::env::set_var("THP_MEM_ALLOC_ENABLE", "1");
    }
}
