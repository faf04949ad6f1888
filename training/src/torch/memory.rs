//! How this process keeps memory.

/// Has freed memory stay with this process. Tensors of megabytes come and go with every step, and
/// pages that the kernel gives out anew cost more than what is computed in them. Must come before
/// other threads.
pub fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc takes these numbers at any time; nothing else runs yet, so that nobody reads the
    // environment meanwhile. libtorch asks for large pages where that variable says so.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        std::env::set_var("THP_MEM_ALLOC_ENABLE", "1");
    }
}
