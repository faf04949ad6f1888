//! The web app, which Vite builds from `web/` and which is part of the program.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Path and content of each file; empty if the app was not built.
const ASSETS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

const NOT_BUILT: &str = "The web app is not part of this program. Build it with `pipelines/studio/web/build` and compile again.\n";

/// Serves a file of the app. Other paths are pages of the app, which reads them itself.
pub async fn serve(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let find = |wanted: &str| ASSETS.iter().find(|(path, _)| *path == wanted);
    let found = find(path).map(|found| (found, "max-age=31536000, immutable"));
    match found.or_else(|| Some((find("index.html")?, "no-store"))) {
        Some(((path, content), cache)) => {
            let headers = [(CONTENT_TYPE, content_type(path)), (CACHE_CONTROL, cache)];
            (headers, *content).into_response()
        }
        None => (StatusCode::NOT_FOUND, NOT_BUILT).into_response(),
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
