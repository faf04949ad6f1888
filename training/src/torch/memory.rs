//! Settings of the memory allocator.

/// Gives freed memory back to the system. Between steps it stays; what loading and packing freed is not needed again.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps freed memory in this process and asks for large pages. Large tensors are allocated and freed in every
/// step, and new pages from the kernel cost more than the computation on them. Must run before other
/// threads start.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt accepts these parameters at any time. No other thread runs yet that could read the
    // environment. libtorch uses large pages if that variable is set.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        std::env::set_var("THP_MEM_ALLOC_ENABLE", "1");
    }
}
