//! Enables CUDA at run time, so that one binary serves machines with and without GPUs.

/// Loads libtorch's CUDA library if it is installed. Must run before any other use of libtorch, which
/// caches whether CUDA is available.
pub fn enable_cuda() {
    // SAFETY: the name is a C string; libtorch_cuda's initializers only register kernels. A missing
    // library gives null: then there is no CUDA.
    unsafe {
        libc::dlopen(
            c"libtorch_cuda.so".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_GLOBAL,
        );
    }
}
