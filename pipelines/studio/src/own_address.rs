//! The data of each page at the page's own address, for programs that accept JSON only.

use axum::Router;
use axum::extract::Request;
use axum::http::header::{ACCEPT, VARY};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::Response;

/// The routes, which also answer at the addresses of pages. Requests are changed before these routes see them.
pub(crate) fn answer(routes: Router) -> Router {
    Router::new()
        .fallback_service(routes)
        .layer(from_fn(at_own_address))
}

async fn at_own_address(mut request: Request, next: Next) -> Response {
    let asks_for_data = request.method() == Method::GET && wants_json(request.headers());
    let data = data_address(request.uri()).filter(|_| asks_for_data);
    let Some(address) = data else {
        return next.run(request).await;
    };
    *request.uri_mut() = address;
    let mut response = next.run(request).await;
    let accept = HeaderValue::from_static("accept");
    response.headers_mut().append(VARY, accept);
    response
}

/// Where the data of a page are; `None` for other addresses.
fn data_address(uri: &Uri) -> Option<Uri> {
    // The app ignores a slash at the end, too.
    let page = uri.path().trim_end_matches('/');
    let mut turn = None;
    let path = match page {
        "" => "/api/data".to_owned(),
        "/chat" => "/api/chats".to_owned(),
        path @ ("/compare" | "/compare/matrix" | "/compare/pair" | "/results"
        | "/results/training") => {
            format!("/api{path}")
        }
        path if path.starts_with("/data/") => format!("/api{path}"),
        path if path.starts_with("/chat/") => path.replacen("/chat/", "/api/chats/", 1),
        path => {
            let of_turn = path.strip_prefix("/edit/").and_then(edited_turn);
            turn = of_turn.map(|(_, turn)| format!("turn={turn}"));
            let of_trajectory = path.strip_prefix("/review/");
            let trajectory = of_turn.map(|(trajectory, _)| trajectory);
            format!("/api/data/{}", of_trajectory.or(trajectory)?)
        }
    };
    let query: Vec<&str> = turn.as_deref().into_iter().chain(uri.query()).collect();
    match query.is_empty() {
        true => path.parse().ok(),
        false => format!("{path}?{}", query.join("&")).parse().ok(),
    }
}

/// The trajectory and the turn of an edit: its data are the page of the trajectory that has the turn.
fn edited_turn(edit: &str) -> Option<(&str, &str)> {
    let found = edit.rsplit_once('/');
    found.filter(|(trajectory, _)| trajectory.contains('/'))
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|types| types.contains("application/json") && !types.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_data_elsewhere() {
        for (page, data) in [
            ("/", Some("/api/data")),
            ("/data/d/1?search=x", Some("/api/data/d/1?search=x")),
            ("/data/d/", Some("/api/data/d")),
            ("/data/d/statistics", Some("/api/data/d/statistics")),
            (
                "/data/d/recipe?beside=e",
                Some("/api/data/d/recipe?beside=e"),
            ),
            (
                "/data/d/tasks?decision=changed",
                Some("/api/data/d/tasks?decision=changed"),
            ),
            ("/data/d/1/edits/0f", Some("/api/data/d/1/edits/0f")),
            ("/compare?a=d&b=d", Some("/api/compare?a=d&b=d")),
            (
                "/compare/matrix?a=d&c=e",
                Some("/api/compare/matrix?a=d&c=e"),
            ),
            (
                "/compare/pair?a=d&a_number=1&b=e&b_number=1&turn=250",
                Some("/api/compare/pair?a=d&a_number=1&b=e&b_number=1&turn=250"),
            ),
            ("/results/training", Some("/api/results/training")),
            ("/chat", Some("/api/chats")),
            ("/chat/0f", Some("/api/chats/0f")),
            ("/review/d/1", Some("/api/data/d/1")),
            (
                "/edit/d/1/2?strict=failed",
                Some("/api/data/d/1?turn=2&strict=failed"),
            ),
            ("/edit/d/1/250/", Some("/api/data/d/1?turn=250")),
            ("/edit/d/1", None),
            ("/edit/d", None),
            ("/assets/index.js", None),
            ("/api/data", None),
        ] {
            let found = data_address(&page.parse().unwrap());
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), data, "{page}");
        }
    }
}
