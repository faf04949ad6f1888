//! Rows, recipes and results as JSON.

use super::*;

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
        "/api/data/z/changes",
        "/api/data/x/statistics",
    ] {
        assert_eq!(studio.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let dataset = super::studio();
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
