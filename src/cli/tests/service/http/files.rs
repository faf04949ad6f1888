//! Files of a session: uploads, lists, downloads.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{answer, serve};

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_are_listed_and_come_out() {
    let Some(server) = serve(&["--upload", "1"]) else {
        return;
    };
    let session = server.session().await;
    let at = |path: &str| format!("{session}/files/{path}");
    let put =
        |path: &str, bytes: Vec<u8>| answer(server.request(Method::PUT, &at(path)).body(bytes));
    let (status, entry) = put("data/a%20b.csv", b"x\n1\n".to_vec()).await;
    assert_eq!(
        (status, &entry["path"], &entry["size"]),
        (StatusCode::CREATED, &json!("data/a b.csv"), &json!(4))
    );
    let code =
        "import os, shutil; shutil.copy('data/a b.csv', 'output/c.csv'); os.symlink('/etc', 'etc')";
    server
        .post(&format!("{session}/execute"), json!({"code": code}))
        .await;
    let (_, listed) = server.get(&format!("{session}/files?depth=3")).await;
    let paths: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["data", "data/a b.csv", "etc", "output", "output/c.csv"]
    );
    let bytes = server
        .request(Method::GET, &at("output/c.csv"))
        .send()
        .await
        .unwrap();
    assert_eq!(bytes.headers()["x-content-type-options"], "nosniff");
    assert_eq!(bytes.bytes().await.unwrap(), "x\n1\n");
    for path in ["etc/passwd", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd"] {
        let (status, body) = server.get(&at(path)).await;
        assert_eq!(status, 400, "{path}: {body}");
    }
    assert_eq!(server.get(&at("none")).await.0, 404);
    assert_eq!(put("big", vec![0; (1 << 20) + 1]).await.0, 413);
    assert_eq!(server.get(&at("big")).await.0, 404);
    let removed = server
        .request(Method::DELETE, &at("output/c.csv"))
        .send()
        .await
        .unwrap();
    assert_eq!(removed.status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_is_not_read_ends_with_its_session() {
    const SIZE: usize = 64 << 20;
    let Some(server) = serve(&[]) else {
        return;
    };
    let session = server.session().await;
    let code = format!("open('output/zeros', 'wb').write(bytes({SIZE}))");
    let (_, written) = server
        .post(&format!("{session}/execute"), json!({"code": code}))
        .await;
    assert_eq!(
        written["outputs"][0]["data"]["text/plain"],
        SIZE.to_string(),
        "{written}"
    );
    let path = format!("{session}/files/output/zeros");
    let mut response = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.content_length(), Some(SIZE as u64));
    server.end(&session).await;
    let mut received = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        received += piece.len();
    }
    assert!(
        received < SIZE,
        "the file was sent after the end of its session"
    );
}
