//! The code execution service: interpreter sessions over HTTP.
//!
//! One registry of sandboxes behind three APIs: CodeAct's single route ([`codeact`]), our own routes
//! ([`sessions`], [`files`]) and the routes of E2B's client ([`e2b`]). [`guard`] authenticates requests before
//! a body is read. `docs/service.md` is the user documentation.

mod body;
mod body_budget;
mod client;
mod codeact;
mod connections;
mod e2b;
mod error;
mod events;
mod files;
mod guard;
mod http_server;
mod kernel;
mod openapi;
mod pace;
mod registry;
mod route;
mod routes;
mod sessions;
mod tied_body;
mod token;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pybench_run::RunError;
use tokio::net::TcpListener;

pub use http_server::HttpServer;
use pybench_interpreter::{Interpreter, InterpreterError, Limits, Network};
pub use routes::openapi;
pub use token::{Tokens, TokensError};

use body_budget::BodyBudget;
use registry::Registry;

/// Time limit for open connections to end when the service stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Options of the service.
#[derive(Clone, Debug)]
pub struct Options {
    /// Access tokens; `None`: no authentication, which is allowed only on a loopback address.
    pub tokens: Option<Tokens>,
    /// Accepted host names, in addition to those of the loopback.
    pub hosts: Vec<String>,
    /// Web origins (`https://chat.example`) whose pages may call the service.
    pub origins: Vec<String>,
    /// Resource limits of each session.
    pub limits: Limits,
    /// Hosts that sessions may connect to; `None`: no network.
    pub network: Option<Network>,
    /// Sessions that are unused for this long are closed.
    pub idle: Duration,
    /// Maximum lifetime of an E2B sandbox.
    pub longest: Duration,
    /// Maximum number of sessions of one client at a time.
    pub per_client: usize,
    /// Maximum number of sessions at a time.
    pub total: usize,
    /// Maximum size of an uploaded file, bytes.
    pub upload: u64,
    /// Maximum number of open connections; further clients get status 503.
    pub connections: usize,
    /// Time limit for receiving the head of a request.
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

/// Why the service could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The address is not a loopback address, and there are no tokens.
    #[error(
        "{0} can be reached from other machines: without a token the service listens only on a loopback \
         address. Give --token-file FILE, or --address 127.0.0.1:PORT"
    )]
    Exposed(SocketAddr),
    /// The interpreter cannot run.
    #[error(transparent)]
    Interpreter(#[from] InterpreterError),
    /// The socket failed.
    #[error("serving: {0}")]
    Io(#[from] std::io::Error),
}

impl From<ServiceError> for RunError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Exposed(_) => Self::BadInput(error.to_string()),
            ServiceError::Interpreter(error) => Self::Environment(error.to_string()),
            ServiceError::Io(source) => Self::Io {
                context: "serving".to_owned(),
                source,
            },
        }
    }
}

/// Reads the tokens of `--token-file`. If the file is missing, creates it with a new random token.
///
/// # Errors
/// [`RunError::Environment`] for a file that cannot be read or written, [`RunError::BadInput`] with the line
/// number for an invalid one.
pub fn read_tokens(path: &Path) -> Result<Tokens, RunError> {
    let (tokens, made) = Tokens::from_file(path).map_err(|error| match error {
        TokensError::Io(..) => RunError::Environment(format!("--token-file: {error}")),
        error => RunError::BadInput(error.to_string()),
    })?;
    if made {
        eprintln!("a new token was written to {}", path.display());
    }
    Ok(tokens)
}

/// State that all handlers share.
struct Service {
    options: Options,
    registry: Registry,
    bodies: Arc<BodyBudget>,
}

/// Serves on a listener until `stop` resolves, then closes every session.
///
/// # Errors
/// [`ServiceError::Exposed`] without tokens on an address that is not a loopback address.
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
        bodies: Arc::default(),
    });
    let bounds = connections::Bounds {
        max_connections: service.options.connections,
        head: service.options.head,
    };
    let reaper = tokio::spawn(registry::close_expired(service.clone()));
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
        // Closing sessions stops their cells, which ends the responses that wait for them.
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
