//! The way in, for other services of ours: names, token and connections are handled as this one
//! handles them; the routes are the other's.

use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use tokio::net::TcpListener;

use super::guard::{self, Names};
use super::{ServiceError, Tokens, connections, routes};

/// Who may come in, and how many.
#[derive(Clone, Debug)]
pub struct Door {
    /// Who may ask; `None`: everybody who reaches it, which must be this machine alone.
    pub tokens: Option<Tokens>,
    /// Names by which the service may be called, beside the loopback's.
    pub hosts: Vec<String>,
    /// Open connections; whoever comes above that is told 503.
    pub connections: usize,
    /// For the head of a request to come.
    pub head: Duration,
}

impl Door {
    /// Serve routes on a listener until `stop` resolves and what is being answered has been. Pages of
    /// browsers are refused, whatever their origin. Bodies are for the routes to bound.
    ///
    /// # Errors
    /// [`ServiceError::Exposed`] without tokens on an address that is not the loopback's.
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
        let names = Names::new(address, &self.hosts, &[]);
        let app = app
            .layer(DefaultBodyLimit::disable())
            .layer(from_fn_with_state(self.tokens, guard::token))
            .layer(from_fn_with_state(std::sync::Arc::new(names), guard::names))
            .layer(map_response(routes::not_sniffed));
        let bounds = connections::Bounds {
            most: self.connections,
            head: self.head,
        };
        connections::serve(listener, app, bounds, stop).await;
        Ok(())
    }
}
