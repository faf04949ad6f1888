//! The way out of a session, where one is granted: names on a list, through a proxy on the host, each
//! request logged. Without it a session has no network at all.
//!
//! The design: a session keeps its own empty network namespace. One Unix socket of the host, made for
//! that session, is mounted into it; behind it [`serve`] answers as an HTTP proxy and resolves names
//! itself, so that nothing but permitted connections leaves the namespace, not even a DNS question.
//! Inside, a forwarder from a loopback port to that socket makes `HTTP_PROXY` and `HTTPS_PROXY` work for
//! pip, requests and the like. A name's addresses must be public: a permitted name that points into
//! the host's own networks is refused, unless the list names the address itself.
//!
//! The host's half is here; no tier mounts the socket yet.

mod allow;
mod proxy;
mod request;

pub use allow::{AllowList, RuleError};
pub use proxy::{Bounds, Log, Verdict, Visit, serve};
