//! The local executor: tokio, bounded concurrency, leases, retries, Ctrl-C.
