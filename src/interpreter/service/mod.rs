//! The code execution service: sessions of an interpreter over HTTP.
//!
//! Three faces of one registry of sandboxes: CodeAct's single route ([`codeact`]), routes of our own
//! ([`sessions`], [`files`]) and those that E2B's client asks for ([`e2b`]). Who may ask is decided in
//! [`guard`], before a body is read. `docs/service.md` describes all of it for its users.

mod body;
mod codeact;
mod connections;
mod door;
mod e2b;
mod error;
mod events;
mod files;
mod guard;
mod kernel;
mod openapi;
mod registry;
mod routes;
mod sessions;
mod token;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::{Interpreter, InterpreterError, Limits, Network};
pub use door::Door;
pub use openapi::openapi;
pub use token::{Tokens, TokensError};

use registry::Registry;

/// How long open connections may take to end when the service stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who may ask; `None`: everybody who reaches it, which must be this machine alone.
    pub tokens: Option<Tokens>,
    /// Names by which the service may be called, beside the loopback's.
    pub hosts: Vec<String>,
    /// Web origins (`https://chat.example`) whose pages may call it.
    pub origins: Vec<String>,
    /// Bounds of each session.
    pub limits: Limits,
    /// Hosts that each session may reach; `None`: no network.
    pub network: Option<Network>,
    /// Sessions that nobody used for so long are closed.
    pub idle: Duration,
    /// Longest life of an E2B sandbox.
    pub longest: Duration,
    /// Sessions that one client may have at once.
    pub per_client: usize,
    /// Sessions at once.
    pub total: usize,
    /// Largest file uploaded, bytes.
    pub upload: u64,
    /// Open connections; whoever comes above that is told 503.
    pub connections: usize,
    /// For the head of a request to come.
    pub head: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tokens: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            limits: Limits {
                output_chars: 1_000_000,
                ..Limits::default()
            },
            network: None,
            idle: Duration::from_secs(600),
            longest: Duration::from_secs(86_400),
            per_client: 32,
            total: 256,
            upload: 256 << 20,
            connections: 1024,
            head: Duration::from_secs(15),
        }
    }
}

/// Why the service could not be started or went down.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Without a token only this machine may reach the service.
    #[error(
        "{0} can be reached from other machines: without a token only a loopback address is served. \
         Give --token-file FILE, or --bind 127.0.0.1:PORT"
    )]
    Exposed(SocketAddr),
    /// The interpreter cannot run.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// The socket failed.
    #[error("serving: {0}")]
    Io(#[from] std::io::Error),
}

/// What all handlers share.
struct Service {
    options: Options,
    registry: Registry,
}

/// Serve on a listener until `stop` resolves; then every session is closed.
///
/// # Errors
/// [`ServiceError::Exposed`] without tokens on an address that is not the loopback's.
pub async fn serve(
    interpreter: Arc<dyn Interpreter>,
    options: Options,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServiceError> {
    let address = listener.local_addr()?;
    if options.tokens.is_none() && !address.ip().is_loopback() {
        return Err(ServiceError::Exposed(address));
    }
    let service = Arc::new(Service {
        registry: Registry::new(interpreter, &options),
        options,
    });
    let bounds = connections::Bounds {
        most: service.options.connections,
        head: service.options.head,
    };
    let reaper = tokio::spawn(registry::reap(service.clone()));
    let app = routes::router(service.clone(), address);
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let signal = async move {
        stop.await;
        let _ = stopping.send(());
    };
    let server = connections::serve(listener, app, bounds, signal);
    let closing = service.clone();
    let close = async move {
        let _ = stopped.await;
        // Cells that run are stopped, which ends the responses that wait for them.
        closing.registry.close_all().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        () = server => {}
        () = close => {}
    }
    reaper.abort();
    service.registry.close_all().await;
    Ok(())
}
