//! Sessions: used, watched, interrupted, bounded, ended.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{OTHER, answer, serve};

/// Events with the pieces of each stream joined: a busy machine may put any time between two writes of a cell.
fn joined(events: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for event in events {
        match all.last_mut() {
            Some(last) if event["output"] == "stream" && last["name"] == event["name"] => {
                let text = [&last["text"], &event["text"]].map(|text| text.as_str().unwrap());
                last["text"] = text.concat().into();
            }
            _ => all.push(event),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_used_watched_and_ended() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let run = async |code: &str| {
        let (status, result) = server
            .post(&format!("{session}/execute"), json!({"code": code}))
            .await;
        assert_eq!(status, 200, "{result}");
        result
    };
    assert_eq!(run("x = 1").await["count"], 1);
    let seen = run("print('a')\nx + 1").await;
    assert_eq!(
        seen["outputs"][0],
        json!({"output": "stream", "name": "stdout", "text": "a\n"})
    );
    assert_eq!(seen["outputs"][1]["data"]["text/plain"], "2");
    assert_eq!(run("1/0").await["error"]["ename"], "ZeroDivisionError");

    let stream = |accept: &str| {
        let request = server.request(Method::POST, &format!("{session}/stream"));
        request
            .header("accept", accept)
            .json(&json!({"code": "print('b')\n'c'"}))
    };
    let lines = stream("*/*").send().await.unwrap().text().await.unwrap();
    let events = joined(
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap()),
    );
    assert_eq!(
        events[0],
        json!({"event": "output", "output": "stream", "name": "stdout", "text": "b\n"})
    );
    assert_eq!(events[1]["data"]["text/plain"], "'c'");
    assert_eq!(
        events[2],
        json!({"event": "end", "count": 4, "error": null, "stopped": null})
    );
    let sent = stream("text/event-stream")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        sent.starts_with("data: {\"event\":\"output\"") && sent.ends_with("}\n\n"),
        "{sent}"
    );

    let (status, listed) = server.get("/v1/sessions").await;
    assert_eq!(
        (status, listed.as_array().unwrap().len()),
        (StatusCode::OK, 1)
    );
    let others = server
        .http
        .get(format!("{}{session}", server.url))
        .bearer_auth(OTHER);
    assert_eq!(answer(others).await.0, 404);
    server.end(&session).await;
    assert_eq!(server.get(&session).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_one_session_is_unknown_to_others() {
    const DRAW: &str = "import os, random, secrets, uuid, numpy as np\n\
        print(secrets.token_hex(), uuid.uuid4(), os.urandom(8).hex(), random.Random().random(), np.random.default_rng().random())";
    const SEEDED: &str = "print(random.random(), np.random.rand())";
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let mut drawn = Vec::new();
    for spec in [json!({}), json!({}), json!({"seed": 7}), json!({"seed": 7})] {
        let (_, session) = server.post("/v1/sessions", spec).await;
        let path = format!("/v1/sessions/{}/execute", session["id"].as_str().unwrap());
        let run = async |code: &str| {
            let (_, result) = server.post(&path, json!({"code": code})).await;
            let shown = &result["outputs"][0]["text"];
            let values = shown.as_str().unwrap_or_else(|| panic!("{result}"));
            values
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        drawn.push((run(DRAW).await, run(SEEDED).await));
    }
    for (n, (secrets, seeded)) in drawn.iter().enumerate() {
        assert_eq!((secrets.len(), seeded.len()), (5, 2), "{drawn:?}");
        for (other_secrets, other_seeded) in &drawn[n + 1..] {
            let mut pairs = secrets.iter().zip(other_secrets);
            assert!(pairs.all(|(one, other)| one != other), "{drawn:?}");
            assert_eq!(seeded == other_seeded, n == 2, "{drawn:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_is_interrupted_by_request_and_by_leaving() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let forever = || {
        let request = server.request(Method::POST, &format!("{session}/stream"));
        request.json(&json!({"code": "y = 1\nprint('on', flush=True)\nwhile True: pass"}))
    };
    let mut response = forever().send().await.unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("on"));
    assert_eq!(
        server
            .post(&format!("{session}/interrupt"), json!({}))
            .await
            .0,
        202
    );
    let rest = response.text().await.unwrap();
    assert!(
        rest.contains("KeyboardInterrupt") && rest.contains(r#""stopped":"interrupted""#),
        "{rest}"
    );

    let mut response = forever().send().await.unwrap();
    response.chunk().await.unwrap().unwrap();
    drop(response);
    let (_, seen) = server
        .post(&format!("{session}/execute"), json!({"code": "y"}))
        .await;
    assert_eq!(seen["outputs"][0]["data"]["text/plain"], "1", "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_for_each_client_and_in_all() {
    let Some(server) = serve(&["--per-client", "2", "--total", "3"]) else {
        return;
    };
    let first = server.session().await;
    let conversation = json!({"convid": "a", "code": "1"});
    assert_eq!(server.post("/execute", conversation).await.0, 200);
    let (status, body) = server.post("/v1/sessions", json!({})).await;
    assert_eq!(status, 429, "{body}");
    let theirs = || {
        let request = server.http.post(format!("{}/v1/sessions", server.url));
        answer(request.bearer_auth(OTHER).json(&json!({})))
    };
    assert_eq!(theirs().await.0, 201);
    assert_eq!(theirs().await.0, 429);
    server.end(&first).await;
    assert_eq!(theirs().await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sessions_are_closed_and_busy_ones_are_not() {
    let Some(server) = serve(&["--idle", "3"]) else {
        return;
    };
    let ask = async || {
        let conversation = json!({"convid": "a", "code": "import time; time.sleep(6); 5"});
        server.post("/execute", conversation).await.1
    };
    assert_eq!(
        ask().await,
        json!({"result": "5", "new_kernel_created": true})
    );
    let until = Instant::now() + Duration::from_secs(60);
    while server.get("/v1/sessions").await.1 != json!([]) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(server.get("/v1/sessions").await.1, json!([]));
    assert_eq!(ask().await["new_kernel_created"], true);
}
