//! The web app, which `web/build` makes and which is part of the program.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Path and content of each file; empty if the app was not built.
const ASSETS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

const NOT_BUILT: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>pybench studio</title>\
<h1>The web app is not part of this program</h1>\
<p>It was not built when the program was compiled. In the checkout, run <code>pipelines/studio/web/build</code>, which needs \
the registries of PyPI and npm, and compile again. The data are there: see <a href=/api/data>/api/data</a>.\n";

/// Whether the program has the web app.
pub(crate) fn are_built() -> bool {
    !ASSETS.is_empty()
}

/// Serves a file of the app. Other paths are pages of the app, which reads them itself.
pub(crate) async fn serve(uri: Uri) -> Response {
    let find = |wanted: &str| ASSETS.iter().find(|(path, _)| *path == wanted);
    if let Some((path, content)) = find(uri.path().trim_start_matches('/')) {
        let headers = [
            (CONTENT_TYPE, content_type(path)),
            (CACHE_CONTROL, "max-age=31536000, immutable"),
        ];
        return (headers, *content).into_response();
    }
    if uri.path().starts_with("/assets/") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let html = [(CONTENT_TYPE, "text/html; charset=utf-8"), (VARY, "accept")];
    match find("index.html") {
        Some((_, content)) => (html, *content).into_response(),
        None => (html, NOT_BUILT).into_response(),
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
