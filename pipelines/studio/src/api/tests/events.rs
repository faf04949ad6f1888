//! Server-sent events.

use super::*;

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
async fn events_follow_the_files_of_a_dataset() {
    let studio = studio();
    let mut events = Events::follow(&studio, "/api/data/d/changes").await;
    let before = events.next().await;
    assert_eq!(before["newer"], Value::Null);
    assert_eq!(studio.json("/api/data/d").await["state"], before);
    let path = studio.folder.path().join("d/train.jsonl");
    let row = std::fs::read_to_string(&path).unwrap();
    let next = studio.folder.path().join("next.jsonl");
    std::fs::write(&next, format!("{row}\n{row}")).unwrap();
    std::fs::rename(next, path).unwrap();
    // An event may come when the new list begins to be made.
    let mut last = events.next().await;
    while last["newer"] != Value::Null {
        last = events.next().await;
    }
    assert_ne!(last["version"], before["version"]);
    let page = studio.json("/api/data/d").await;
    assert_eq!((&page["total"], &page["state"]), (&json!(2), &last));
}
