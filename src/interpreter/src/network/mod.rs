//! Network access of sessions: only listed hosts, through a proxy on the host that logs each request.
//! Without a list a session has no network.
//!
//! A session has its own network namespace with nothing but a loopback interface. Before any cell runs, its
//! process listens on a port there and passes the listening socket to the host, which accepts connections
//! on it: a socket stays in the namespace in which it was created. So nothing is mounted, no process
//! forwards data, and the system call filter needs no exception. Containers cannot pass a socket: there the
//! relay, which cells cannot access, listens on the same port and forwards only to a socket of the host in
//! a mounted folder ([`ProxySocket`]). The host acts as an HTTP proxy and resolves names itself, so only
//! permitted connections leave the namespace, not even DNS queries. The addresses of a name must be public:
//! a listed name that resolves to a private address is refused unless the list has the address itself.

mod allow;
mod proxy;
mod proxy_socket;
mod request;

use std::fmt;
use std::sync::Arc;

pub use allow::{AllowList, RuleError};
pub(super) use proxy::Proxy;
pub use proxy::{ProxyLimits, ProxyRecord, ProxyVerdict, RequestLog};
pub use proxy_socket::ProxySocket;

/// Port of the proxy on a session's loopback interface.
pub(super) const PORT: u16 = 3128;

/// The network access of one session.
#[derive(Clone, Default)]
pub struct Network {
    /// Hosts that it may connect to.
    pub allowed: Arc<AllowList>,
    /// Name of the session in the log; empty: the name of its workspace.
    pub session: String,
    /// Limits on connections, time and bytes.
    pub limits: ProxyLimits,
    /// Called for each request, in addition to this program's log (target `pybench_types::network`).
    pub log: Option<RequestLog>,
}

impl Network {
    /// Access to the listed hosts; `None` if the list is empty.
    ///
    /// # Errors
    /// [`RuleError`] for the first invalid rule.
    pub fn allow(rules: &[String]) -> Result<Option<Self>, RuleError> {
        let allowed = Arc::new(AllowList::parse(rules.iter().map(String::as_str))?);
        Ok((!rules.is_empty()).then(|| Self {
            allowed,
            ..Self::default()
        }))
    }

    /// The same access under the name of a session.
    #[must_use]
    pub fn for_session(&self, session: impl Into<String>) -> Self {
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
