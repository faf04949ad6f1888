//! The way out of a session, where one is granted: names on a list, through a proxy on the host, each
//! request logged. Without it a session has no network at all.
//!
//! A session keeps its own network namespace, in which there is nothing but its loopback. Before any
//! cell runs its process listens on a port there and hands the listening socket to the host, which
//! accepts on it: a socket belongs to the namespace that it was made in, whoever holds it. Nothing is
//! mounted, no process forwards, and the system call filter is the one of every session. From a container
//! no socket can be handed over: there the relay, which no cell can reach, listens on the same port and
//! forwards to a socket of the host's in a folder of its own ([`Door`]), and to nothing else. The host
//! answers as an HTTP proxy and resolves names itself, so that nothing but permitted connections leaves
//! the namespace, not even a DNS question. A name's addresses must be public: a permitted name that
//! points into the host's own networks is refused, unless the list names the address itself.

mod allow;
mod door;
mod proxy;
mod request;

use std::fmt;
use std::sync::Arc;

pub use allow::{AllowList, RuleError};
pub(super) use door::Door;
pub(super) use proxy::Way;
pub use proxy::{Bounds, Log, Verdict, Visit};

/// Where a session finds its proxy, on its own loopback.
pub(super) const PORT: u16 = 3128;

/// What one session may reach.
#[derive(Clone, Default)]
pub struct Network {
    /// Whom it may ask for.
    pub allowed: Arc<AllowList>,
    /// What the log calls the session; empty: by a number of its own.
    pub session: String,
    /// How much of it.
    pub bounds: Bounds,
    /// Told of each request, beside this program's log (target `pybench::network`).
    pub log: Option<Log>,
}

impl Network {
    /// For hosts on a list; `None` where it is empty.
    ///
    /// # Errors
    /// [`RuleError`] with the text of the first rule that is none.
    pub fn to(rules: &[String]) -> Result<Option<Self>, RuleError> {
        let allowed = Arc::new(AllowList::parse(rules.iter().map(String::as_str))?);
        Ok((!rules.is_empty()).then(|| Self {
            allowed,
            ..Self::default()
        }))
    }

    /// The same for a session of that name.
    #[must_use]
    pub fn of(&self, session: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            ..self.clone()
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Network");
        out.field("allowed", &self.allowed);
        out.field("session", &self.session).finish_non_exhaustive()
    }
}
