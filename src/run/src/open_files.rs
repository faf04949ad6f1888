//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files of some thousand sessions. Programs that this one starts inherit the limit, and some prepare for each
/// file that it allows.
const OPEN_FILES: u64 = 1 << 16;

/// Raises the limit to [`OPEN_FILES`], or to what needs no privilege. Sessions and requests take several files each, and the
/// usual limit of 1,024 is for programs with few of them. Sessions get a limit of their own.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit {
        current: Some(wanted),
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("cannot raise the limit of open files: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_may_be_open() {
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        let most = limit.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
        assert!(limit.current.is_none_or(|current| current >= most));
    }
}
