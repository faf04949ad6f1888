//! An HTTP server for other services of pybench, with the same checks of host names, tokens and connections
//! as this one.

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use tokio::net::TcpListener;

use super::guard::{self, AllowedNames};
use super::{ServiceError, Tokens, connections, routes};

/// Access control and limits of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpServer {
    /// Access tokens; `None`: no authentication, which is allowed only on a loopback address.
    pub tokens: Option<Tokens>,
    /// Accepted host names, in addition to those of the loopback.
    pub hosts: Vec<String>,
    /// Whether the routes have web pages, which may call them. Pages of other origins may not.
    pub own_pages: bool,
    /// Maximum number of open connections; further clients get status 503.
    pub connections: usize,
    /// Time limit for receiving the head of a request.
    pub head: Duration,
}

impl HttpServer {
    /// Serves routes on a listener until `stop` resolves and running requests are answered. Requests from
    /// web pages of other origins are refused. The routes must limit the size of bodies.
    ///
    /// # Errors
    /// [`ServiceError::Exposed`] without tokens on an address that is not a loopback address.
    pub async fn serve(
        self,
        listener: TcpListener,
        app: Router,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServiceError> {
        let address = listener.local_addr()?;
        if self.tokens.is_none() && !address.ip().is_loopback() {
            return Err(ServiceError::Exposed(address));
        }
        let names = AllowedNames::new(address, &self.hosts, &[]);
        let names = names.with_own_pages(self.own_pages);
        let app = app
            .layer(DefaultBodyLimit::disable())
            .layer(from_fn_with_state(self.tokens, guard::token))
            .layer(from_fn_with_state(std::sync::Arc::new(names), guard::names))
            .layer(map_response(routes::not_sniffed));
        let bounds = connections::Bounds {
            max_connections: self.connections,
            head: self.head,
        };
        connections::serve(listener, app, bounds, stop).await;
        Ok(())
    }
}
