//! The table of attempts, by subject. Each is the body of a Python function that returns true when it got through.

/// One attempt.
pub(super) struct Attempt {
    pub(super) name: &'static str,
    pub(super) outside: Outside,
    pub(super) body: &'static str,
}

/// What is known of an attempt outside of a jail. Whatever is harmless is shown there first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outside {
    /// It succeeds.
    Works,
    /// It succeeds for root; others have not the right to it outside either.
    WorksForRoot,
    /// It succeeds in a session without a jail, tier `unsandboxed`: it aims at what only sessions have.
    WorksInNone,
    /// It is tried, and succeeds where the kernel or the machine has what it needs.
    Depends,
    /// It is not tried, for the reason that follows.
    NotTried(Reason),
}

/// Why an attempt is not shown to succeed outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reason {
    /// It would take all memory or processes of the machine.
    Bomb,
    /// It would fill the machine with files, text, threads or the like.
    Flood,
    /// It would change or stop the machine.
    Machine,
    /// It would end processes of others.
    Signal,
    /// It would go to an address that is not this machine's.
    Outward,
    /// It aims at the host's own handling of a session, which only a jailed one has.
    Inside,
    /// It looks at what a jail is made of; outside there is none to look at.
    Jail,
}

macro_rules! attempts {
    ($($name:ident: $outside:expr, $body:expr;)*) => {
        pub(crate) const ATTEMPTS: &[super::Attempt] = &[
            $(super::Attempt { name: stringify!($name), outside: $outside, body: $body }),*
        ];
    };
}

pub(super) mod devices;
pub(super) mod files;
pub(super) mod floods;
pub(super) mod kernel;
pub(super) mod namespaces;
pub(super) mod network;
pub(super) mod privileges;
pub(super) mod processes;
pub(super) mod writes;

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Attempt> {
    let groups = [
        network::ATTEMPTS,
        files::ATTEMPTS,
        writes::ATTEMPTS,
        devices::ATTEMPTS,
        privileges::ATTEMPTS,
        namespaces::ATTEMPTS,
        kernel::ATTEMPTS,
        processes::ATTEMPTS,
        floods::ATTEMPTS,
    ];
    groups.into_iter().flatten()
}
