//! SIGINT and SIGTERM: by default they end the program with code 130. Code that must finish something first
//! defers them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::exit::ExitCode;

static RECEIVED: AtomicUsize = AtomicUsize::new(0);
/// How many signals do not end the program at once.
static DEFERRED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    let received = RECEIVED.fetch_add(1, Ordering::SeqCst) + 1;
    if received > DEFERRED.load(Ordering::SeqCst) {
        // SAFETY: `_exit` may be called in a signal handler.
        unsafe { libc::_exit(ExitCode::Interrupted as libc::c_int) };
    }
}

/// Installs the handlers. Signals that the parent process has set to be ignored stay ignored.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: both structures are valid; the handler uses atomics and `_exit` only.
        unsafe {
            let mut current: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut current);
            if current.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// The number of signals so far.
pub(crate) fn received() -> usize {
    RECEIVED.load(Ordering::SeqCst)
}

/// While it exists, the given number of signals do not end the program; its owner must check [`received`].
#[derive(Debug)]
pub(crate) struct Deferral {
    before: usize,
}

impl Deferral {
    pub(crate) fn of(signals: usize) -> Self {
        Self {
            before: DEFERRED.swap(signals, Ordering::SeqCst),
        }
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        DEFERRED.store(self.before, Ordering::SeqCst);
    }
}
