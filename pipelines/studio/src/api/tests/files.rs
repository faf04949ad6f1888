//! Files, and what keeps them and pages from executing.

use super::*;
use crate::assets;

#[tokio::test]
async fn every_answer_has_a_policy_that_forbids_scripts_from_elsewhere() {
    let studio = studio();
    // A page of the app, or, if that was not built, how to build it.
    let (_, headers, body) = studio.get("/data/d").await;
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(body.contains("web/build"), !assets::are_built(), "{body}");
    for path in [
        "/",
        "/data/d/1",
        "/api/data",
        "/api/data/nothing",
        "/api/nothing",
        "/assets/x",
    ] {
        let (_, headers, _) = studio.get(path).await;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer");
    }
}

#[tokio::test]
async fn files_are_sent_as_types_that_cannot_execute() {
    let studio = studio();
    for (name, media, disposition) in [
        ("a.html", "text/plain; charset=utf-8", "inline"),
        ("a.svg", "text/plain; charset=utf-8", "inline"),
        ("a.png", "image/png", "inline"),
        ("a.pdf", "application/octet-stream", "attachment"),
        ("", "application/octet-stream", "attachment"),
    ] {
        let path = format!("/api/data/d/files/{}?name={name}", studio.file);
        let (status, headers, body) = studio.get(&path).await;
        assert_eq!((status, &*body), (StatusCode::OK, "<script>"));
        assert_eq!(headers["content-type"], media, "{name}");
        assert_eq!(headers["content-disposition"], disposition, "{name}");
        assert_eq!(
            headers["content-security-policy"],
            "sandbox; default-src 'none'"
        );
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }
    let path = format!("/api/data/d/files/{}?name=a.txt&head=3", studio.file);
    assert_eq!(studio.get(&path).await.2, "<sc");
    for id in ["..%2f..%2fetc%2fpasswd", "x", &"0".repeat(64)] {
        let (status, ..) = studio.get(&format!("/api/data/d/files/{id}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{id}");
    }
}

#[tokio::test]
async fn parts_of_files_are_data_and_html_has_a_frame_that_may_do_nothing() {
    let studio = studio();
    let of = |rest: &str| format!("/api/data/d/files/{}/{rest}", studio.file);
    let (_, headers, body) = studio.get(&of("page?name=a.html")).await;
    assert_eq!(headers["content-type"], "application/json");
    let page: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&page["kind"], &page["text"]),
        (&json!("html"), &json!("<script>"))
    );
    let (status, headers, body) = studio.get(&of("frame")).await;
    assert_eq!((status, &*body), (StatusCode::OK, "<script>"));
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("sandbox; default-src 'none';"),
        "{policy}"
    );
    assert!(
        !policy.contains("script") && !policy.contains("allow"),
        "{policy}"
    );
    assert!(policy.ends_with("frame-ancestors 'self'"), "{policy}");
    for path in [
        "/api/data/d/files/x/page".to_owned(),
        "/api/data/d/files/x/frame".to_owned(),
        format!("/api/data/d/files/{}/page", "0".repeat(64)),
        format!("/api/data/d/files/{}/frame", "0".repeat(64)),
    ] {
        assert_eq!(studio.get(&path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let wrong = studio.get(&of("page?from=-1")).await;
    assert_eq!(wrong.0, StatusCode::BAD_REQUEST);
}
