//! CUDA is looked for at run time, so that one binary serves machines with and without.

/// Loads libtorch's CUDA half where there is one. Must come before any other use of libtorch: it
/// remembers that there was none.
pub fn enable_cuda() {
    // SAFETY: the name is a C string; libtorch_cuda's initialisers only register kernels. A missing
    // library gives null, which means that there is no CUDA, and is no error.
    unsafe {
        libc::dlopen(
            c"libtorch_cuda.so".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_GLOBAL,
        );
    }
}
