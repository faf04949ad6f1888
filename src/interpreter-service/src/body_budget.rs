//! Memory that the bodies of all requests may take together, from their first byte until they are answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Service;
use super::client::Client;
use super::error::ApiError;
use super::registry::Sandbox;
use super::tied_body::TiedBody;

/// Maximum memory of all bodies, bytes. One client may hold half of it.
const MAX_HELD: usize = 128 << 20;

/// Bytes of each body that are not counted, so that ordinary requests are served whatever others send. The
/// number of connections bounds their sum.
const FREE: usize = 64 << 10;

/// The bytes that each client holds.
#[derive(Debug, Default)]
pub(super) struct BodyBudget(Mutex<HashMap<Client, usize>>);

/// What one request holds; returned when it is dropped.
pub(super) struct Share {
    budget: Arc<BodyBudget>,
    client: Client,
    bytes: Mutex<usize>,
}

impl BodyBudget {
    fn change(&self, client: &Client, less: usize, more: usize) -> Result<(), ApiError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = held.values().sum::<usize>() - less + more;
        let own = held.get(client).copied().unwrap_or(0) - less + more;
        if more > less && (all > MAX_HELD || own > MAX_HELD / 2) {
            let text = "too many large bodies at a time: send this one again later";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        match own {
            0 => held.remove(client),
            own => held.insert(client.clone(), own),
        };
        Ok(())
    }
}

impl Share {
    pub(super) fn new(budget: Arc<BodyBudget>, client: Client) -> Self {
        let bytes = Mutex::default();
        Self {
            budget,
            client,
            bytes,
        }
    }

    /// The share of a request.
    pub(super) fn of(request: &Request) -> Result<Arc<Self>, ApiError> {
        let share = request.extensions().get::<Arc<Self>>().cloned();
        share.ok_or_else(|| ApiError::missing("the client"))
    }

    /// Counts bytes that were received; an error if that is more than the budget allows.
    pub(super) fn grow(&self, bytes: usize) -> Result<(), ApiError> {
        self.resize(|held| held.saturating_add(bytes))
    }

    /// Counts nothing more of what was received until now.
    pub(super) fn release(&self) {
        let _ = self.resize(|_| 0); // less is always allowed
    }

    fn resize(&self, change: impl FnOnce(usize) -> usize) -> Result<(), ApiError> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (*bytes, change(*bytes));
        let counted = |bytes: usize| bytes.saturating_sub(FREE);
        let (less, more) = (counted(before), counted(after));
        self.budget.change(&self.client, less, more)?;
        *bytes = after;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

/// Gives a request of a known client its share, which it holds until its response has ended.
pub(super) async fn hold(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let extensions = request.extensions();
    let sandbox = extensions.get::<Arc<Sandbox>>();
    let owner = sandbox.map(|sandbox| sandbox.client.clone());
    let Some(client) = extensions.get::<Client>().cloned().or(owner) else {
        return ApiError::missing("the client").into_response();
    };
    let share = Arc::new(Share::new(service.bodies.clone(), client));
    request.extensions_mut().insert(share.clone());
    let response = next.run(request).await;
    response.map(|body| Body::new(TiedBody::new(body, share)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_are_bounded_and_small_ones_always_pass() {
        let budget = Arc::<BodyBudget>::default();
        let share = |name: &str| Share::new(budget.clone(), Client(name.into()));
        let mebibytes = |count: usize| count << 20;
        let one: Vec<_> = (0..5).map(|_| share("one")).collect();
        for body in &one[..4] {
            body.grow(mebibytes(15)).unwrap();
        }
        let refused = one[4].grow(mebibytes(15)).unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        let (other, third) = (share("two"), share("three"));
        other.grow(mebibytes(64)).unwrap();
        assert!(
            third.grow(mebibytes(8)).is_err(),
            "all clients share a limit"
        );
        third.grow(FREE).unwrap();
        drop(other);
        third.grow(mebibytes(8)).unwrap();
        one[0].release();
        one[4].grow(mebibytes(15)).unwrap();
        drop((one, third));
        assert!(budget.0.lock().unwrap().is_empty());
    }
}
