//! Every route, once: the router and the OpenAPI description are both made from this table.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::body::{BareJson, Json};
use super::codeact::{self, ExecuteRequest, ExecuteResponse};
use super::e2b::{code, control, files as their_files, filesystem};
use super::error::Refusal;
use super::guard::{self, Access, Client, Names};
use super::registry::Sandbox;
use super::{Service, files, openapi, sessions};
use crate::interpreter::Entry;

/// Makes the schema of a type.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// A body or its absence.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Nothing,
    Json(Describe),
    /// Bytes of a media type.
    Raw(&'static str),
}

/// One route.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) tag: &'static str,
    pub(super) access: Access,
    pub(super) summary: &'static str,
    pub(super) query: Option<Describe>,
    pub(super) takes: Content,
    pub(super) status: u16,
    pub(super) gives: Content,
    handler: MethodRouter<Arc<Service>>,
}

fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Route {
    fn new(
        (method, path): (&'static str, &'static str),
        summary: &'static str,
        handler: MethodRouter<Arc<Service>>,
    ) -> Self {
        let (tag, access) = match path {
            "/execute" => ("codeact", Access::Either),
            path if path.starts_with("/v1/") || path == "/openapi.json" => {
                ("sessions", Access::Client)
            }
            path if path.contains("/sandboxes") => ("e2b", Access::Client),
            _ => ("e2b", Access::Sandbox),
        };
        Self {
            method,
            path,
            tag,
            access,
            summary,
            query: None,
            takes: Content::Nothing,
            status: 204,
            gives: Content::Nothing,
            handler,
        }
    }

    fn asks<T: JsonSchema>(mut self) -> Self {
        self.query = Some(describe::<T>);
        self
    }

    fn takes<T: JsonSchema>(mut self) -> Self {
        self.takes = Content::Json(describe::<T>);
        self
    }

    fn takes_raw(mut self) -> Self {
        self.takes = Content::Raw("application/octet-stream");
        self
    }

    fn gives<T: JsonSchema>(mut self, status: u16) -> Self {
        (self.status, self.gives) = (status, Content::Json(describe::<T>));
        self
    }

    fn gives_raw(mut self, kind: &'static str) -> Self {
        (self.status, self.gives) = (200, Content::Raw(kind));
        self
    }

    fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// The table.
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
        Route::new(("get", "/v1/sessions"), "The client's sessions", get(sessions::list))
            .gives::<Vec<sessions::SessionInfo>>(200),
        Route::new(("get", "/v1/sessions/{id}"), "One session", get(sessions::show))
            .gives::<sessions::SessionInfo>(200),
        Route::new(("delete", "/v1/sessions/{id}"), "End a session", delete(sessions::close)),
        Route::new(("post", "/v1/sessions/{id}/execute"), "Run a cell and wait for its end", post(sessions::execute))
            .takes::<sessions::Cell>()
            .gives::<sessions::CellResult>(200),
        Route::new(("post", "/v1/sessions/{id}/stream"), "Run a cell and watch it: lines of JSON, each an Event, or server-sent events with Accept: text/event-stream", post(sessions::stream))
            .takes::<sessions::Cell>()
            .gives_raw(LINES),
        Route::new(("post", "/v1/sessions/{id}/interrupt"), "Interrupt the cell that runs", post(sessions::interrupt))
            .status(202),
        Route::new(("get", "/v1/sessions/{id}/files"), "What lies in a folder of the workspace", get(files::list))
            .asks::<files::Listing>()
            .gives::<Vec<Entry>>(200),
        Route::new(("put", "/v1/sessions/{id}/files/{*path}"), "Upload a file: the body is its content", put(files::upload))
            .takes_raw()
            .gives::<Entry>(201),
        Route::new(("get", "/v1/sessions/{id}/files/{*path}"), "Download a file", get(files::download))
            .gives_raw("application/octet-stream"),
        Route::new(("delete", "/v1/sessions/{id}/files/{*path}"), "Remove a file, or a folder with all in it", delete(files::remove)),
        Route::new(("get", "/openapi.json"), "This description", get(openapi::serve))
            .gives_raw("application/json"),
    ]
}

fn e2b_control() -> Vec<Route> {
    let mut routes = vec![
        Route::new(
            ("get", "/v2/sandboxes"),
            "The client's sandboxes",
            get(control::list),
        )
        .asks::<control::Filter>()
        .gives::<Vec<control::Detail>>(200),
        Route::new(
            ("get", "/sandboxes/{id}"),
            "One sandbox",
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
            "Set how long a sandbox lives from now",
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
            "The sandbox's contexts",
            get(code::list_contexts),
        )
        .gives::<Vec<code::Context>>(200),
        Route::new(
            ("post", "/contexts"),
            "Make a context",
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
            "Let a context begin anew",
            post(code::restart_context),
        ),
        Route::new(
            ("get", "/health"),
            "Whether the sandbox lives",
            get(their_files::health),
        ),
        Route::new(("get", "/files"), "Read a file", get(their_files::read))
            .asks::<their_files::FileQuery>()
            .gives_raw("application/octet-stream"),
        Route::new(
            ("post", "/files"),
            "Write files: raw, or the parts `file` of a form",
            post(their_files::write),
        )
        .asks::<their_files::FileQuery>()
        .takes_raw()
        .gives::<Vec<their_files::Written>>(200),
        Route::new(
            ("post", "/filesystem.Filesystem/{method}"),
            "Stat, MakeDir, Move, ListDir or Remove, as the connect protocol has it",
            post(filesystem::call),
        )
        .takes::<filesystem::Arguments>()
        .gives_raw("application/json"),
    ]
}

/// CodeAct and E2B have one route in common; a header tells them apart.
async fn execute(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Refusal> {
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
    let client = client.ok_or_else(|| Refusal::missing("the client"))?;
    let BareJson(request) = BareJson::from_request(request, &()).await?;
    let response = codeact::execute(&service, &client, request).await?;
    Ok(axum::Json(response).into_response())
}

/// The whole service, called by the names of `address` and of the options.
pub(super) fn router(service: Arc<Service>, address: SocketAddr) -> Router {
    let options = &service.options;
    let names = Arc::new(Names::new(address, &options.hosts, &options.origins));
    let mut router = Router::new();
    for route in routes() {
        let state = (service.clone(), route.access);
        let handler = route
            .handler
            .layer(from_fn_with_state(state, guard::authenticate));
        router = router.route(route.path, handler);
    }
    router
        .fallback(async || Refusal::missing("this route"))
        .method_not_allowed_fallback(async || {
            let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
            Refusal::new(status, "the route does not know this method")
        })
        // Bodies are bounded where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(names, guard::names))
        .layer(map_response(not_sniffed))
        .with_state(service)
}

/// No browser shall take an answer for something else than it says.
pub(super) async fn not_sniffed(mut response: Response) -> Response {
    let name = axum::http::header::X_CONTENT_TYPE_OPTIONS;
    let value = axum::http::HeaderValue::from_static("nosniff");
    response.headers_mut().insert(name, value);
    response
}
