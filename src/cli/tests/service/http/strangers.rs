//! Clients without a token, from another site, or that hold a connection up.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{OTHER, TOKEN, answer, serve};

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let Some(server) = serve(&["--origin", "https://chat.example"]) else {
        return;
    };
    let url = format!("{}/v1/sessions", server.url);
    let status =
        async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    for path in ["/v1/sessions", "/openapi.json", "/v2/sandboxes"] {
        let bare = server.http.get(format!("{}{path}", server.url));
        assert_eq!(status(bare).await, 401, "{path}");
    }
    assert_eq!(
        status(server.http.get(&url).bearer_auth("wrong")).await,
        401
    );
    assert_eq!(
        status(server.http.get(&url).header("x-api-key", TOKEN)).await,
        200
    );
    assert_eq!(
        status(server.http.get(&url).basic_auth("me", Some(TOKEN))).await,
        200
    );
    let with =
        |name: &str, value: &str| server.http.get(&url).bearer_auth(TOKEN).header(name, value);
    assert_eq!(status(with("host", "rebound.example")).await, 403);
    assert_eq!(status(with("origin", "https://evil.example")).await, 403);
    assert_eq!(status(with("origin", "null")).await, 403);
    assert_eq!(status(with("origin", "https://chat.example")).await, 200);
    let post = |kind: &str, body: &'static str| {
        let request = server.http.post(&url).bearer_auth(TOKEN);
        request.header("content-type", kind.to_owned()).body(body)
    };
    assert_eq!(status(post("text/plain", "{}")).await, 415);
    assert_eq!(status(post("application/json", "{")).await, 400);
    assert_eq!(
        status(post("application/json", r#"{"unknown": 1}"#)).await,
        400
    );
    // By a client of its own: the server closes that connection, and no other request may meet its end.
    let huge = reqwest::Client::new()
        .post(&url)
        .bearer_auth(TOKEN)
        .header("content-type", "application/json")
        .body(vec![b' '; 17 << 20]);
    assert_eq!(status(huge).await, 413);
    // Without the sandbox's token, its id alone opens nothing; an unknown one has ended.
    let (_, sandbox) = server
        .post("/v2/sandboxes", json!({"templateID": "t"}))
        .await;
    let health = |id: &str| {
        server
            .http
            .get(format!("{}/health", server.url))
            .header("e2b-sandbox-id", id.to_owned())
    };
    let id = sandbox["sandboxID"].as_str().unwrap();
    assert_eq!(status(health(id)).await, 401);
    assert_eq!(status(health(id).bearer_auth(OTHER)).await, 401);
    assert_eq!(
        status(health(id).header(
            "x-access-token",
            sandbox["envdAccessToken"].as_str().unwrap()
        ))
        .await,
        204
    );
    assert_eq!(status(health("unknown")).await, 502);
    assert_eq!(status(server.request(Method::GET, "/nothing")).await, 404);
    assert_eq!(
        status(server.request(Method::PATCH, "/v1/sessions")).await,
        405
    );
}

#[test]
fn half_a_request_holds_nobody_up() {
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let address = server.url.trim_start_matches("http://");
    let mut slow = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(
        &mut slow,
        b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    )
    .unwrap();
    let mut quick = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(
        &mut quick,
        b"GET /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    .unwrap();
    let mut text = String::new();
    quick.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 200") && text.ends_with("[]"),
        "{text}"
    );
    // One request line with two lengths, or with none that is one, is no request.
    let mut odd = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut odd, b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    let mut text = String::new();
    odd.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

/// A connection that sends a part of a request and then a byte at a time, until it is closed.
fn trickle(address: &str, start: &'static str) -> std::thread::JoinHandle<()> {
    use std::io::Write;
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    std::thread::spawn(move || {
        let _ = stream.write_all(start.as_bytes());
        let waits = |error: &std::io::Error| {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            matches!(error.kind(), WouldBlock | TimedOut)
        };
        // Whatever is read is an end, or what was said before it.
        while stream.read(&mut [0; 512]).is_err_and(|error| waits(&error)) {
            let _ = stream.write_all(b"x");
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_lock_nobody_out() {
    const HEAD: &str = "POST /execute HTTP/1.1\r\nHost: localhost\r\nX-Long: ";
    const BODY: &str = "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{";
    let Some(server) = serve(&["--no-token", "--connections", "4", "--head-seconds", "600"]) else {
        return;
    };
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let slow = [HEAD, BODY, HEAD, BODY].map(|start| trickle(&address, start));
    for _ in 0..4 {
        let client = reqwest::Client::new();
        let body = json!({"convid": "a", "code": "6 * 7"}).to_string();
        let (status, answer) =
            answer(client.post(format!("{}/execute", server.url)).body(body)).await;
        assert_eq!(
            (status, answer["result"].as_str()),
            (StatusCode::OK, Some("42")),
            "{answer}"
        );
    }
    drop(server);
    for client in slow {
        client.join().unwrap();
    }
}
