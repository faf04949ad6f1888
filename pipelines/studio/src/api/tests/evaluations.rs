//! Evaluations: how they are listed, compared, reviewed and retried.

use super::*;
use crate::api::reviews::MAX_BODY;

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
    let last = "/api/compare/pair?a=x&a_number=1&b=y&b_number=2&turn=9";
    assert_eq!(studio.json(last).await, pair);
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
