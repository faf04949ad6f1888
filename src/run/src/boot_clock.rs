//! A clock that is never set, and that goes on while the process or the machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine has started.
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(now.tv_sec.unsigned_abs(), nanos)
}
