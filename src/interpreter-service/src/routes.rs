//! The table of routes, from which the router and the OpenAPI description are made.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};

use super::route::Route;
use serde_json::Value;

use super::body::{Json, LenientJson};
use super::codeact::{self, ExecuteRequest, ExecuteResponse};
use super::e2b::{code, control, files as their_files, filesystem};
use super::error::ApiError;
use super::guard::{self, AllowedNames, Client};
use super::registry::Sandbox;
use super::{Service, body_budget, files, sessions};
use pybench_interpreter::FileEntry;

/// The OpenAPI description; `docs/openapi.json` is a copy.
pub fn openapi() -> Value {
    super::openapi::document(&routes())
}

/// `GET /openapi.json`.
async fn serve_openapi() -> axum::Json<Value> {
    axum::Json(openapi())
}

pub(super) fn routes() -> Vec<Route> {
    let mut routes = own();
    routes.extend(e2b_control());
    routes.extend(e2b_sandbox());
    routes
}

fn own() -> Vec<Route> {
    const LINES: &str = "application/x-ndjson";
    vec![
        Route::new(("post", "/execute"), "Run a cell in a conversation's interpreter (CodeAct), or, with the header E2b-Sandbox-Id, in a sandbox (E2B; the answer is a stream of lines)", post(execute))
            .takes::<ExecuteRequest>()
            .gives::<ExecuteResponse>(200),
        Route::new(("post", "/v1/sessions"), "Start a session", post(sessions::create))
            .takes::<sessions::NewSession>()
            .gives::<sessions::SessionInfo>(201),
        Route::new(("get", "/v1/sessions"), "List the client's sessions", get(sessions::list))
            .gives::<Vec<sessions::SessionInfo>>(200),
        Route::new(("get", "/v1/sessions/{id}"), "Describe a session", get(sessions::show))
            .gives::<sessions::SessionInfo>(200),
        Route::new(("delete", "/v1/sessions/{id}"), "End a session", delete(sessions::close)),
        Route::new(("post", "/v1/sessions/{id}/execute"), "Run a cell and wait for its end", post(sessions::execute))
            .takes::<sessions::Cell>()
            .gives::<sessions::CellResult>(200),
        Route::new(("post", "/v1/sessions/{id}/stream"), "Run a cell and stream its events: lines of JSON, each an Event, or server-sent events with Accept: text/event-stream", post(sessions::stream))
            .takes::<sessions::Cell>()
            .gives_raw(LINES),
        Route::new(("post", "/v1/sessions/{id}/interrupt"), "Interrupt the running cell", post(sessions::interrupt))
            .status(202),
        Route::new(("get", "/v1/sessions/{id}/files"), "List a folder of the workspace", get(files::list))
            .asks::<files::Listing>()
            .gives::<Vec<FileEntry>>(200),
        Route::new(("put", "/v1/sessions/{id}/files/{*path}"), "Upload a file: the body is its content", put(files::upload))
            .takes_raw()
            .gives::<FileEntry>(201),
        Route::new(("get", "/v1/sessions/{id}/files/{*path}"), "Download a file", get(files::download))
            .gives_raw("application/octet-stream"),
        Route::new(("delete", "/v1/sessions/{id}/files/{*path}"), "Remove a file, or a folder with its contents", delete(files::remove)),
        Route::new(("get", "/openapi.json"), "Get this OpenAPI description", get(serve_openapi))
            .gives_raw("application/json"),
    ]
}

fn e2b_control() -> Vec<Route> {
    let mut routes = vec![
        Route::new(
            ("get", "/v2/sandboxes"),
            "List the client's sandboxes",
            get(control::list),
        )
        .asks::<control::Filter>()
        .gives::<Vec<control::Detail>>(200),
        Route::new(
            ("get", "/sandboxes/{id}"),
            "Describe a sandbox",
            get(control::show),
        )
        .gives::<control::Detail>(200),
        Route::new(
            ("delete", "/sandboxes/{id}"),
            "Kill a sandbox",
            delete(sessions::close),
        ),
        Route::new(
            ("post", "/sandboxes/{id}/timeout"),
            "Set the remaining lifetime of a sandbox",
            post(control::set_timeout),
        )
        .takes::<control::Timeout>(),
    ];
    let creates = [
        ("/v2/sandboxes", "Create a sandbox"),
        ("/sandboxes", "Create a sandbox (older clients)"),
    ];
    routes.extend(creates.map(|(path, summary)| {
        Route::new(("post", path), summary, post(control::create))
            .takes::<control::NewSandbox>()
            .gives::<control::Created>(201)
    }));
    let connects = [
        (
            "/v2/sandboxes/{id}/connect",
            "Connect to a sandbox by its id",
        ),
        (
            "/sandboxes/{id}/connect",
            "Connect to a sandbox by its id (older clients)",
        ),
    ];
    routes.extend(connects.map(|(path, summary)| {
        Route::new(("post", path), summary, post(control::connect))
            .takes::<control::Connect>()
            .gives::<control::Created>(200)
    }));
    routes
}

fn e2b_sandbox() -> Vec<Route> {
    vec![
        Route::new(
            ("get", "/contexts"),
            "List the sandbox's contexts",
            get(code::list_contexts),
        )
        .gives::<Vec<code::Context>>(200),
        Route::new(
            ("post", "/contexts"),
            "Create a context",
            post(code::create_context),
        )
        .takes::<code::NewContext>()
        .gives::<code::Context>(200),
        Route::new(
            ("delete", "/contexts/{id}"),
            "Remove a context",
            delete(code::remove_context),
        ),
        Route::new(
            ("post", "/contexts/{id}/restart"),
            "Restart a context",
            post(code::restart_context),
        ),
        Route::new(
            ("get", "/health"),
            "Check whether the sandbox is running",
            get(their_files::health),
        ),
        Route::new(("get", "/files"), "Read a file", get(their_files::read))
            .asks::<their_files::FileQuery>()
            .gives_raw("application/octet-stream"),
        Route::new(
            ("post", "/files"),
            "Write files: a raw body, or the `file` parts of a form",
            post(their_files::write),
        )
        .asks::<their_files::FileQuery>()
        .takes_raw()
        .gives::<Vec<their_files::Written>>(200),
        Route::new(
            ("post", "/filesystem.Filesystem/{method}"),
            "Stat, MakeDir, Move, ListDir or Remove, in the Connect protocol",
            post(filesystem::call),
        )
        .takes::<filesystem::Arguments>()
        .gives_raw("application/json"),
    ]
}

/// CodeAct and E2B share this route; a header distinguishes them.
async fn execute(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (sandbox, client) = {
        let extensions = request.extensions();
        (
            extensions.get::<Arc<Sandbox>>().cloned(),
            extensions.get::<Client>().cloned(),
        )
    };
    if let Some(sandbox) = sandbox {
        let Json(request) = Json::from_request(request, &()).await?;
        return code::run(&sandbox, request);
    }
    let client = client.ok_or_else(|| ApiError::missing("the client"))?;
    let LenientJson(request) = LenientJson::from_request(request, &()).await?;
    let response = codeact::execute(&service, &client, request).await?;
    Ok(axum::Json(response).into_response())
}

/// The router of the whole service. It accepts the host names of `address` and of the options.
pub(super) fn router(service: Arc<Service>, address: SocketAddr) -> Router {
    let options = &service.options;
    let names = Arc::new(AllowedNames::new(address, &options.hosts, &options.origins));
    let mut router = Router::new();
    for route in routes() {
        let state = (service.clone(), route.access);
        let handler = route
            .handler
            .layer(from_fn_with_state(service.clone(), body_budget::hold))
            .layer(from_fn_with_state(state, guard::authenticate));
        router = router.route(route.path, handler);
    }
    router
        .fallback(async || ApiError::missing("this route"))
        .method_not_allowed_fallback(async || {
            let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
            ApiError::new(status, "this route does not support this method")
        })
        // Handlers limit the size of bodies.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(names, guard::names))
        .layer(map_response(not_sniffed))
        .with_state(service)
}

/// Forbids browsers to guess another content type.
pub(super) async fn not_sniffed(mut response: Response) -> Response {
    let name = axum::http::header::X_CONTENT_TYPE_OPTIONS;
    let value = axum::http::HeaderValue::from_static("nosniff");
    response.headers_mut().insert(name, value);
    response
}
