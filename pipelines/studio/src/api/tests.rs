use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use pybench_show::TrajectorySource;
use pybench_types::id::Digest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::reviews::MAX_BODY;
use super::*;
use crate::chat::chats::ChatPlace;
use crate::edit::models::ModelPlace;
use crate::shared_models::SharedModels;
use crate::sources::What;

struct Studio {
    folder: tempfile::TempDir,
    app: Router,
    token: Token,
    file: Digest,
}

fn models(folder: &std::path::Path) -> Arc<SharedModels> {
    Arc::new(SharedModels::new(folder.to_owned()))
}

/// Conversations in a folder, without agents.
fn chats(folder: &std::path::Path) -> Arc<Chats> {
    let place = ChatPlace {
        root: folder.to_owned(),
        history: folder.join("chat"),
        profile: None,
        recipe: folder.join("no-recipe.toml"),
        runs_dir: folder.join("no-runs"),
        endpoints: true,
    };
    Arc::new(Chats::new(place, models(folder)))
}

/// Edits without models.
fn forks(folder: &std::path::Path) -> Arc<Forks> {
    let place = ModelPlace {
        root: folder.to_owned(),
        recipe: folder.join("no-recipe.toml"),
        runs_dir: folder.join("no-runs"),
        replies: folder.join("replies"),
        drafts: folder.join("drafts"),
    };
    Arc::new(Forks::new(place, models(folder)))
}

/// A studio of a dataset with one row and one file.
fn studio() -> Studio {
    let folder = tempfile::tempdir().unwrap();
    let file = Digest::of_bytes(b"<script>");
    let row = json!({"messages": [
        {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One."}]});
    let dataset = folder.path().join("d");
    std::fs::create_dir_all(dataset.join("files")).unwrap();
    std::fs::write(dataset.join("train.jsonl"), row.to_string()).unwrap();
    std::fs::write(dataset.join("files").join(file.as_str()), "<script>").unwrap();
    let source = TrajectorySource::Dataset(dataset);
    let what = What::One {
        name: "d".into(),
        source,
    };
    let sources = Arc::new(Sources::new(what, folder.path().join("cache")));
    let token = Token::new(80);
    let (forks, chats) = (forks(folder.path()), chats(folder.path()));
    let app = router(sources, forks, chats, token.clone());
    Studio {
        folder,
        app,
        token,
        file,
    }
}

impl Studio {
    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        let bearer = format!("Bearer {}", self.token.text());
        self.ask(path, &[("authorization", &bearer)]).await
    }
}

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

#[tokio::test]
async fn data_and_errors_are_json() {
    let studio = studio();
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (_, _, body) = studio.get("/api/data").await;
    assert_eq!(json(&body)[0]["name"], "d");
    let (_, _, body) = studio.get("/api/data/d?count=1").await;
    assert_eq!(json(&body)["rows"][0]["query"], "Count.");
    let (_, _, body) = studio.get("/api/data/d/1").await;
    assert_eq!(json(&body)["turns"][0]["text"], "One.");
    let (_, _, body) = studio.get("/api/data/d/1/raw").await;
    assert_eq!(json(&body)["dataset"]["messages"][1]["content"], "One.");
    for (path, expected) in [
        ("/api/data/d?sort=nothing", StatusCode::BAD_REQUEST),
        ("/api/data/d?from=-1", StatusCode::BAD_REQUEST),
        ("/api/data/d?nothing=1", StatusCode::BAD_REQUEST),
        ("/api/data/other", StatusCode::NOT_FOUND),
        ("/api/data/d/2", StatusCode::NOT_FOUND),
        ("/api/data/d/x", StatusCode::NOT_FOUND),
        ("/api/x", StatusCode::NOT_FOUND),
    ] {
        let (status, _, body) = studio.get(path).await;
        assert_eq!(status, expected, "{path}");
        assert!(json(&body)["message"].is_string(), "{body}");
    }
    // The address of a page has its data for programs.
    let bearer = format!("Bearer {}", studio.token.text());
    let accept = [("authorization", &*bearer), ("accept", "application/json")];
    for (page, data) in [
        ("/", "/api/data"),
        ("/data/d?search=one", "/api/data/d?search=one"),
        ("/data/d/1?search=x", "/api/data/d/1"),
        ("/compare?a=d&b=d", "/api/compare?a=d&b=d"),
        ("/review/d/1", "/api/data/d/1"),
        ("/edit/d/1/1", "/api/data/d/1"),
        ("/results", "/api/results"),
    ] {
        let (status, headers, body) = studio.ask(page, &accept).await;
        assert_eq!(headers["content-type"], "application/json", "{page}");
        assert_eq!(headers["vary"], "accept", "{page}");
        let (expected, _, data) = studio.get(data).await;
        assert_eq!((status, body), (expected, data), "{page}");
    }
    // Browsers get the page, and nobody gets data without the token.
    let browser = [
        ("authorization", &*bearer),
        ("accept", "text/html,application/json"),
    ];
    let (_, headers, _) = studio.ask("/data/d/1", &browser).await;
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    let (status, ..) = studio.ask("/data/d/1", &accept[1..]).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// A studio of two evaluations of the same three tasks.
fn evaluations() -> Studio {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    for (name, second) in [("x", Some(true)), ("y", Some(false))] {
        let run = runs.join(name);
        std::fs::create_dir_all(&run).unwrap();
        let attempts = [("m", "1", Some(true)), ("m", "2", second), ("m", "3", None)];
        crate::evaluation::tests::write(&run, &attempts);
    }
    let sources = Sources::new(What::Runs(runs), folder.path().join("cache"));
    let token = Token::new(80);
    let (forks, chats) = (forks(folder.path()), chats(folder.path()));
    Studio {
        folder,
        app: router(Arc::new(sources), forks, chats, token.clone()),
        token,
        file: Digest::of_bytes(b""),
    }
}

impl Studio {
    /// Puts JSON with the token in a header, and these headers.
    async fn put(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        let mut request = Request::put(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The id of a trajectory.
    async fn id(&self, path: &str) -> String {
        let view = self.json(path).await;
        view["row"]["id"].as_str().unwrap().to_owned()
    }
}

fn decision(trajectory: &str, reviewer: &str, decision: Value) -> Value {
    json!({"trajectory": trajectory, "reviewer": reviewer, "decision": decision, "label": "", "comment": ""})
}

#[tokio::test]
async fn evaluations_are_listed_shown_and_compared() {
    let studio = evaluations();
    let list = studio.json("/api/data").await;
    assert_eq!(
        (&list[0]["kind"], &list[0]["trajectories"]),
        (&json!("evaluation"), &json!(3))
    );
    let failed = studio.json("/api/data/y?strict=failed").await;
    assert_eq!(
        (&failed["total"], &failed["rows"][0]["task"]),
        (&json!(1), &json!("s/2"))
    );
    let by_check = studio
        .json("/api/data/y?rejected_by=text%20output/a.txt")
        .await;
    assert_eq!(by_check["rows"][0], failed["rows"][0]);
    let other = studio.json("/api/data/y?rejected_by=text").await;
    assert_eq!(other["total"], 0);
    assert_eq!(
        failed["rows"][0]["failed_checks"],
        json!(["text output/a.txt"])
    );
    let view = studio.json("/api/data/y/2").await;
    let evaluation = &view["evaluation"];
    assert_eq!(
        evaluation["scores"],
        json!([{"score": "strict", "passed": false}])
    );
    assert_eq!(evaluation["checks"][0]["found"], "2");
    assert_eq!(view["turns"][0]["cells"][0]["code"], "2");
    let failed = studio.json("/api/data/y/3").await;
    let note = failed["evaluation"]["notes"][0].as_str().unwrap();
    assert!(note.contains("no sandbox"), "{note}");

    let compared = studio.json("/api/compare?a=x&b=y").await;
    let counts = ["shared", "compared", "a_better", "b_better"];
    let counts = counts.map(|key| compared[key].clone());
    assert_eq!(json!(counts), json!([3, 2, 1, 0]));
    assert!((compared["p"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(compared["tasks"][0]["task"], "s/2");
    let matrix = studio.json("/api/compare/matrix?a=x&c=y").await;
    assert_eq!(matrix["pairs"][0]["a_better"], 1);
    let pair = studio
        .json("/api/compare/pair?a=x&a_number=1&b=y&b_number=2")
        .await;
    assert_eq!(
        (&pair["first"], &pair["first_code"]),
        (&json!(1), &json!(1))
    );
    for (path, expected) in [
        ("/api/compare?a=x&b=nothing", StatusCode::NOT_FOUND),
        (
            "/api/compare?a=x&b=y&measure=verdict",
            StatusCode::BAD_REQUEST,
        ),
        ("/api/compare?a=x&b=y&c=z", StatusCode::BAD_REQUEST),
        ("/api/compare/matrix?a=x", StatusCode::BAD_REQUEST),
        ("/api/compare/matrix?a=x&b=nothing", StatusCode::NOT_FOUND),
        (
            "/api/compare/pair?a=x&a_number=1&b=y",
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/compare/pair?a=x&a_number=1&b=y&b_number=9",
            StatusCode::NOT_FOUND,
        ),
    ] {
        assert_eq!(studio.get(path).await.0, expected, "{path}");
    }
}

#[tokio::test]
async fn decisions_are_saved_counted_and_filtered() {
    let studio = evaluations();
    let bearer = format!("Bearer {}", studio.token.text());
    let program = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    let (first, second) = (
        studio.id("/api/data/x/1").await,
        studio.id("/api/data/x/2").await,
    );
    for (path, id, reviewer, what) in [
        ("/api/data/x/1/review", &first, "ann", "accept"),
        ("/api/data/x/1/review", &first, "bob", "reject"),
        ("/api/data/x/2/review", &second, "ann", "reject"),
        ("/api/data/x/2/review", &second, "bob", "reject"),
    ] {
        let body = decision(id, reviewer, json!(what));
        let (status, answer) = studio.put(path, &body, &program).await;
        assert_eq!((status, &answer), (StatusCode::OK, &body));
    }
    let total =
        async |query: &str| studio.json(&format!("/api/data/x?{query}")).await["total"].clone();
    assert_eq!(total("review=undecided&reviewer=ann").await, 1);
    assert_eq!(total("review=undecided&reviewer=eve").await, 3);
    assert_eq!(total("review=disputed").await, 1);
    assert_eq!(total("review=rejected&reviewer=bob").await, 2);
    assert_eq!(total("review=undecided&reviewer=eve&after=1").await, 2);
    let summary = studio.json("/api/data/x/reviews").await;
    let agreement = &summary["agreements"][0];
    assert_eq!(
        (&agreement["items"], &agreement["agree"]),
        (&json!(2), &json!(0.5))
    );
    let view = studio.json("/api/data/x/1").await;
    assert_eq!(
        (
            view["reviews"].as_array().unwrap().len(),
            &view["reviewable"]
        ),
        (2, &json!(true))
    );

    let stale = decision(&second, "ann", json!("accept"));
    let (status, _) = studio.put("/api/data/x/1/review", &stale, &program).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let nameless = decision(&first, "", json!("accept"));
    let (status, answer) = studio
        .put("/api/data/x/1/review", &nameless, &program)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        answer["message"].as_str().unwrap().contains("`reviewer`"),
        "{answer}"
    );
    let long = decision(&first, "ann", json!("x".repeat(MAX_BODY)));
    let (status, _) = studio.put("/api/data/x/1/review", &long, &program).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
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
async fn datasets_take_no_decisions() {
    let dataset = studio();
    let view = dataset.json("/api/data/d/1").await;
    assert_eq!(view["reviewable"], false);
    let bearer = format!("Bearer {}", dataset.token.text());
    let program = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    let body = decision(&"0".repeat(64), "ann", json!("accept"));
    let (status, answer) = dataset.put("/api/data/d/1/review", &body, &program).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        answer["message"].as_str().unwrap().contains("open the run"),
        "{answer}"
    );
    for path in ["/api/data/d/reviews", "/api/data/d?review=undecided"] {
        assert_eq!(dataset.get(path).await.0, StatusCode::BAD_REQUEST, "{path}");
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

#[tokio::test]
async fn recipes_status_and_results_are_answered() {
    let studio = evaluations();
    for (name, samples) in [("x", 1), ("y", 4)] {
        let recipe = format!("name = 'same'\n[rollout]\nsamples = {samples}\n");
        let path = studio
            .folder
            .path()
            .join("runs")
            .join(name)
            .join("recipe.toml");
        std::fs::write(path, recipe).unwrap();
    }
    let recipe = studio.json("/api/data/x/recipe?beside=y").await;
    let differing = recipe["keys"].as_array().unwrap().iter();
    let differing: Vec<&Value> = differing.filter(|key| key["differs"] == true).collect();
    let expected = json!({"key": "rollout.samples", "value": "1", "other": "4", "differs": true});
    assert_eq!(differing, [&expected]);
    assert_eq!(
        studio.json("/api/data/x/status").await["info"]["kind"],
        "evaluation"
    );
    let results = studio.json("/api/results").await;
    let boards = results["leaderboards"].as_array().unwrap();
    let own = boards.iter().find(|board| board["suite"] == "s").unwrap();
    let runs = [0_usize, 1].map(|at| own["entries"][at]["run"].clone());
    assert_eq!(json!(runs), json!(["x", "y"]));
    assert_eq!(studio.json("/api/results/training").await, json!([]));
    for path in [
        "/api/data/z/status",
        "/api/data/z/recipe",
        "/api/data/z/events",
        "/api/data/x/statistics",
    ] {
        assert_eq!(studio.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let dataset = self::studio();
    for path in [
        "/api/data/d/status",
        "/api/data/d/events",
        "/api/data/d/recipe",
    ] {
        assert_eq!(dataset.get(path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(
        dataset.json("/api/data/d/statistics").await["conversations"],
        1
    );
}

#[tokio::test]
async fn failed_units_are_retried_by_stage_and_kind() {
    use pybench_run::{Failure, FailureKind, Journal};
    let studio = evaluations();
    let run = studio.folder.path().join("runs/x");
    let journal = Journal::open(&run.join("journal.sqlite")).unwrap();
    journal.enqueue("rollout", ["a", "b"]).unwrap();
    for (item, kind) in [("a", FailureKind::Item), ("b", FailureKind::Endpoint)] {
        let failure = Failure::new(kind, "broken");
        journal.fail("rollout", item, &failure, true).unwrap();
    }
    let bearer = format!("Bearer {}", studio.token.text());
    let retry = async |kind: &str| {
        let body = json!({"stage": "rollout", "kind": kind}).to_string();
        let request = Request::post("/api/data/x/retry")
            .header("authorization", &bearer)
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        let response = studio.app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (
            status,
            serde_json::from_slice::<Value>(&body).unwrap_or_default(),
        )
    };
    let (status, answer) = retry("endpoint").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer[0]["units"], 1);
    // It is pending; the other one failed in another way.
    assert_eq!(retry("endpoint").await.0, StatusCode::CONFLICT);
    assert_eq!(
        journal
            .failures()
            .unwrap()
            .iter()
            .filter(|one| one.last)
            .count(),
        1
    );
    assert!(retry("nothing").await.0.is_client_error());
}

/// Server-sent events at an address.
struct Events(axum::body::BodyDataStream);

impl Events {
    async fn follow(studio: &Studio, path: &str) -> Self {
        let bearer = format!("Bearer {}", studio.token.text());
        let request = Request::get(path).header("authorization", &bearer);
        let request = request.body(Body::empty()).unwrap();
        let response = studio.app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body().into_data_stream())
    }

    async fn next(&mut self) -> Value {
        use futures::StreamExt as _;
        let piece = self.0.next().await.unwrap().unwrap();
        let text = String::from_utf8(piece.to_vec()).unwrap();
        let data = text.trim().strip_prefix("data: ").unwrap().to_owned();
        serde_json::from_str(&data).unwrap()
    }
}

#[tokio::test]
async fn events_follow_the_list_of_runs() {
    let studio = evaluations();
    let mut events = Events::follow(&studio, "/api/events").await;
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|run| run["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&events.next().await), ["x", "y"]);
    let added = studio.folder.path().join("runs/added");
    std::fs::create_dir_all(&added).unwrap();
    crate::evaluation::tests::write(&added, &[("m", "1", Some(true))]);
    // The order is that of the names. An event may find the folder half written.
    let mut list = events.next().await;
    while list[0]["trajectories"] != 1 {
        list = events.next().await;
    }
    assert_eq!(names(&list), ["added", "x", "y"]);
}

#[tokio::test]
async fn events_follow_a_training_run() {
    let studio = evaluations();
    let mut events = Events::follow(&studio, "/api/results/training/events").await;
    assert_eq!(events.next().await, json!([]));
    let folder = studio.folder.path().join("runs/trained");
    std::fs::create_dir_all(&folder).unwrap();
    let mut text = String::new();
    for step in [1, 2] {
        text += &format!("{}\n", json!({"step": step, "loss": 0.5}));
        std::fs::write(folder.join("metrics.jsonl"), &text).unwrap();
        // An event may find the file half written.
        let mut curves = events.next().await;
        while curves[0]["steps"] != step {
            curves = events.next().await;
        }
        assert_eq!(curves, studio.json("/api/results/training").await);
    }
}

#[tokio::test]
async fn events_follow_the_agreement_of_two_people() {
    let studio = evaluations();
    let bearer = format!("Bearer {}", studio.token.text());
    let program = [
        ("authorization", &*bearer),
        ("content-type", "application/json"),
    ];
    let first = studio.id("/api/data/x/1").await;
    let mut events = Events::follow(&studio, "/api/data/x/reviews/events").await;
    assert_eq!(events.next().await["reviewers"], json!([]));
    for (reviewer, what) in [("ann", "accept"), ("bob", "reject")] {
        let body = decision(&first, reviewer, json!(what));
        let (status, _) = studio.put("/api/data/x/1/review", &body, &program).await;
        assert_eq!(status, StatusCode::OK);
    }
    // One event may have the decisions of both.
    let mut summary = events.next().await;
    while summary["agreements"] == json!([]) {
        summary = events.next().await;
    }
    assert_eq!(summary["agreements"][0]["agree"], 0.0);
    assert_eq!(summary, studio.json("/api/data/x/reviews").await);
}

#[tokio::test]
async fn what_is_not_indexed_yet_is_said_so() {
    let studio = studio();
    let path = studio.folder.path().join("d/train.jsonl");
    let row = std::fs::read_to_string(&path).unwrap();
    // So many that the last answer comes before all of them are indexed; the test ends without the others.
    let count = 300_000_u64;
    std::fs::write(&path, format!("{row}\n").repeat(count as usize)).unwrap();
    let (status, _, text) = studio.get("/api/data/d").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let page: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(page["rows"][0]["number"], 1);
    assert_eq!(page["indexing"]["problem"], "");
    let rows = page["indexing"]["rows"].as_u64().unwrap();
    assert!((1..count).contains(&rows), "{rows}");
    assert_eq!(studio.get("/api/data/d/1").await.0, StatusCode::OK);
    assert_eq!(studio.get("/api/data/d/0").await.0, StatusCode::NOT_FOUND);
    for (path, expected) in [
        (format!("/api/data/d/{count}"), "not indexed yet"),
        ("/api/compare?a=d&b=d".to_owned(), "needs all of them"),
    ] {
        let (status, _, text) = studio.get(&path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {text}");
        assert!(text.contains(expected), "{path}: {text}");
    }
}
