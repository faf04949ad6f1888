//! Who gets an answer, and who may write.

use super::*;
use crate::api::openapi;

#[tokio::test]
async fn the_link_gives_a_strict_cookie_that_opens_pages() {
    let studio = studio();
    let (status, headers, _) = studio
        .ask(&format!("/data/d?token={}", studio.token.text()), &[])
        .await;
    assert_eq!(
        (status, &headers["location"]),
        (StatusCode::SEE_OTHER, &"/data/d".parse().unwrap())
    );
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap();
    assert!(pair.starts_with("pybench_studio_80="));
    let both = format!("other=1; {pair}");
    assert_eq!(
        studio.ask("/api/data/d", &[("cookie", &both)]).await.0,
        StatusCode::OK
    );
    // A path cannot lead to another host.
    let (_, headers, _) = studio
        .ask(&format!("//example.org?token={}", studio.token.text()), &[])
        .await;
    assert_eq!(headers["location"], "/example.org");
}

#[tokio::test]
async fn nothing_is_answered_without_the_token() {
    let studio = studio();
    let secret = studio.token.text().to_owned();
    let file = format!("/api/data/d/files/{}", studio.file);
    for path in [
        "/",
        "/api/data",
        "/api/data/d/1",
        "/assets/x.js",
        "/?token=",
        "/?token=x",
        &file,
    ] {
        let other_port = format!("pybench_studio_81={secret}");
        let half = format!("pybench_studio_80={}", &secret[..32]);
        for headers in [
            &[][..],
            &[("cookie", "pybench_studio_80=")],
            &[("cookie", &*other_port)],
            &[("cookie", &*half)],
            &[("authorization", "Bearer x")],
        ] {
            let (status, headers, body) = studio.ask(path, headers).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
            assert!(
                body.contains("pybench studio") && !body.contains(&secret[..8]),
                "{body}"
            );
            assert!(!headers.contains_key("set-cookie"));
        }
    }
}

#[tokio::test]
async fn only_own_pages_and_programs_with_the_token_can_write() {
    let studio = evaluations();
    let id = studio.id("/api/data/x/1").await;
    let body = decision(&id, "ann", json!("accept"));
    let secret = studio.token.text();
    let (bearer, cookie) = (
        format!("Bearer {secret}"),
        format!("pybench_studio_80={secret}"),
    );
    let own = ("origin", "http://127.0.0.1:80");
    let (host, json_type) = (
        ("host", "127.0.0.1:80"),
        ("content-type", "application/json"),
    );
    let (bearer, cookie) = (("authorization", &*bearer), ("cookie", &*cookie));
    for (headers, expected) in [
        (&[host, own, json_type][..], StatusCode::UNAUTHORIZED),
        // A form of another site, or a page without an origin.
        (&[host, cookie, json_type], StatusCode::FORBIDDEN),
        (
            &[host, cookie, json_type, ("origin", "null")],
            StatusCode::FORBIDDEN,
        ),
        (
            &[host, cookie, json_type, ("origin", "http://127.0.0.1:81")],
            StatusCode::FORBIDDEN,
        ),
        (
            &[host, cookie, json_type, ("origin", "http://evil.example")],
            StatusCode::FORBIDDEN,
        ),
        (&[host, cookie, own], StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (
            &[host, cookie, own, ("content-type", "text/plain")],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            &[
                host,
                bearer,
                ("content-type", "application/x-www-form-urlencoded"),
            ],
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
    ] {
        let (status, _) = studio.put("/api/data/x/1/review", &body, headers).await;
        assert_eq!(status, expected, "{headers:?}");
    }
    let summary = studio.json("/api/data/x/reviews").await;
    assert_eq!(summary["reviewers"], json!([]));
    let page = [
        host,
        cookie,
        own,
        ("content-type", "application/json; charset=utf-8"),
    ];
    let (status, _) = studio.put("/api/data/x/1/review", &body, &page).await;
    assert_eq!(status, StatusCode::OK);
    // Nothing else can be written.
    let (status, _) = studio.put("/api/data/x/1", &body, &page).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

/// Sends a request with these headers and an empty object.
async fn status_of(
    studio: &Studio,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> StatusCode {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from("{}")).unwrap();
    studio.app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn every_route_needs_the_token_and_every_write_the_own_origin() {
    let studio = evaluations();
    let secret = studio.token.text();
    let bearer = format!("Bearer {secret}");
    let cookie = format!("pybench_studio_80={secret}");
    let json_type = ("content-type", "application/json");
    let of_other_page = [
        ("host", "127.0.0.1:80"),
        ("origin", "http://evil.example"),
        ("cookie", &*cookie),
        json_type,
    ];
    let program = [("authorization", &*bearer), json_type];
    let operations = openapi::operations();
    for operation in &operations {
        let parts = operation.path.split('/');
        let parts = parts.map(|part| if part.starts_with('{') { "x" } else { part });
        let path = parts.collect::<Vec<_>>().join("/");
        for method in ["get", "post", "put", "delete"] {
            let what = format!("{method} {path}");
            let name = method.to_uppercase();
            let status = status_of(&studio, &name, &path, &[json_type]).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}");
            if method != "get" {
                let status = status_of(&studio, &name, &path, &of_other_page).await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{what}");
            }
            let mut known = operations.iter();
            let is_known = known.any(|one| (one.path, one.method) == (operation.path, method));
            let status = status_of(&studio, &name, &path, &program).await;
            let refused = status == StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(refused, !is_known, "{what}");
        }
    }
}

#[tokio::test]
async fn a_code_opens_the_studio_once() {
    let studio = studio();
    let code = studio.token.one_time_code();
    let wrong = studio.ask(&format!("/?once={}", "0".repeat(64)), &[]).await;
    assert_eq!(wrong.0, StatusCode::UNAUTHORIZED);
    let link = format!("/data/d?once={code}");
    let (status, headers, _) = studio.ask(&link, &[]).await;
    assert_eq!(
        (status, &headers["location"]),
        (StatusCode::SEE_OTHER, &"/data/d".parse().unwrap())
    );
    let cookie = headers["set-cookie"].to_str().unwrap();
    let pair = cookie.split(';').next().unwrap();
    let (status, ..) = studio.ask("/api/data/d", &[("cookie", pair)]).await;
    assert_eq!(status, StatusCode::OK);
    // A person who reads the arguments of the browser comes too late. The code is no token either.
    assert_eq!(studio.ask(&link, &[]).await.0, StatusCode::UNAUTHORIZED);
    let as_token = format!("/?token={code}");
    assert_eq!(studio.ask(&as_token, &[]).await.0, StatusCode::UNAUTHORIZED);
}
