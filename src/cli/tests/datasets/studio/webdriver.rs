//! A browser, driven by WebDriver (https://www.w3.org/TR/webdriver2/).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Method};
use serde_json::{Value, json};

/// Time limit for what a page shows.
const PATIENCE: Duration = Duration::from_secs(30);

/// A driver and its port. It takes a free port of IPv4, and ends if another program has the same port of IPv6.
fn started_driver() -> std::io::Result<(Child, u16)> {
    const TRIES: usize = 5;
    let mut printed = Vec::new();
    for _ in 0..TRIES {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                let port = port.trim_end_matches('.').parse().unwrap();
                // It may write more; a closed pipe would end it.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok((driver, port));
            }
            printed.push(line);
        }
        let _ = driver.wait();
    }
    panic!("chromedriver ended {TRIES} times:\n{}", printed.join("\n"));
}

/// Chromium without a window.
pub(super) struct Browser {
    driver: Child,
    http: Client,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it; `None`, with a printed reason, where it is not installed.
    pub(super) async fn start() -> Option<Self> {
        let (driver, port) = match started_driver() {
            Ok(started) => started,
            Err(error) => {
                let text = "chromedriver (Debian: chromium, chromium-driver)";
                pybench_testing::skip::missing_tool(format_args!("{text}: {error}"));
                return None;
            }
        };
        let (http, profile) = (Client::new(), tempfile::tempdir().unwrap());
        let mut browser = Self {
            driver,
            http,
            session: format!("http://127.0.0.1:{port}/session"),
            profile,
        };
        // Chromium's own sandbox does not work for root; what it would hold off is our own test page.
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--window-size=1280,900",
            format!("--user-data-dir={}", browser.profile.path().display()),
        ]);
        // Scripts click on links, and a page may save several files without asking.
        let preferences = json!({
            "download.default_directory": browser.downloads(),
            "profile.default_content_setting_values.automatic_downloads": 1,
        });
        let options = json!({"args": arguments, "prefs": preferences});
        let wanted =
            json!({"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}});
        let session = browser
            .ask(Method::POST, "", &json!({"capabilities": wanted}))
            .await;
        let id = session["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{session}"));
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = self.http.request(method, format!("{}{path}", self.session));
        let answer = request.body(body.to_string()).send().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert!(answer["value"].get("error").is_none(), "{path}: {answer}");
        answer["value"].clone()
    }

    pub(super) async fn open(&self, address: &str) {
        self.ask(Method::POST, "/url", &json!({"url": address}))
            .await;
    }

    /// The value of an expression of JavaScript; a promise is waited for.
    pub(super) async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression})");
        self.ask(
            Method::POST,
            "/execute/sync",
            &json!({"script": script, "args": []}),
        )
        .await
    }

    /// Waits until an expression is true.
    pub(super) async fn wait(&self, expression: &str) {
        let since = Instant::now();
        while self.value(expression).await != json!(true) {
            if since.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText").await;
                panic!(
                    "never true: {expression}\n{}",
                    text.as_str().unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks the first of these elements whose text begins so, as soon as it is there and can be clicked.
    pub(super) async fn click_text(&self, selector: &str, text: &str) {
        self.wait(&format!(
            "(() => {{ const found = [...document.querySelectorAll({selector:?})].find((one) => \
             !one.disabled && one.textContent.trim().startsWith({text:?})); found?.click(); return !!found; }})()"
        ))
        .await;
    }

    /// Writes a value into a field, or chooses it, as soon as the field is there and takes it.
    pub(super) async fn set(&self, field: &str, value: &str) {
        self.wait(&format!(
            "(() => {{ const field = document.querySelector({field:?}); if (!field || field.disabled) return false; \
             field.value = {value:?}; if (field.value !== {value:?}) return false; \
             field.dispatchEvent(new Event('change', {{bubbles: true}})); return true; }})()"
        ))
        .await;
    }

    /// Where files that a page saves are.
    fn downloads(&self) -> PathBuf {
        self.profile.path().join("downloads")
    }

    /// A file that a page saves, as soon as it is whole. Until then, it has another name.
    pub(super) async fn saved_file(&self, name: &str) -> PathBuf {
        let path = self.downloads().join(name);
        let since = Instant::now();
        while !std::fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            assert!(since.elapsed() < PATIENCE, "{name} was not saved");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        path
    }

    /// Types into what has the focus.
    pub(super) async fn keys(&self, keys: &str) {
        let press = |key: char| {
            let key = key.to_string();
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        };
        self.press(keys.chars().flat_map(press).collect()).await;
    }

    /// Shows pages as to a person who prefers a dark or a light screen.
    pub(super) async fn prefer(&self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let command =
            json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}});
        self.ask(Method::POST, "/goog/cdp/execute", &command).await;
    }

    /// Shows pages in a window of this width, in pixels.
    pub(super) async fn resize(&self, width: u32) {
        let metrics =
            json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": false});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.ask(Method::POST, "/goog/cdp/execute", &command).await;
    }

    /// Shows pages in the window as it was before it was resized.
    pub(super) async fn restore_size(&self) {
        let command = json!({"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}});
        self.ask(Method::POST, "/goog/cdp/execute", &command).await;
    }

    /// Presses a key while another one is held.
    pub(super) async fn chord(&self, held: char, key: char) {
        let action = |kind: &str, key: char| json!({"type": kind, "value": key.to_string()});
        let actions = [
            action("keyDown", held),
            action("keyDown", key),
            action("keyUp", key),
            action("keyUp", held),
        ];
        self.press(actions.to_vec()).await;
    }

    /// Clicks at these two coordinates of the window.
    pub(super) async fn click(&self, place: &Value) {
        let coordinate = |at: usize| place[at].as_f64().unwrap() as i64;
        let actions = json!([
            {"type": "pointerMove", "x": coordinate(0), "y": coordinate(1)},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]);
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": actions});
        self.ask(Method::POST, "/actions", &json!({"actions": [mouse]}))
            .await;
    }

    /// How far parts of the page moved by themselves, as the sum of its layout shifts
    /// (https://web.dev/articles/cls).
    pub(super) async fn shifts(&self) -> f64 {
        let shifts = "new Promise((done) => { let sum = 0; new PerformanceObserver((list) => { \
                      for (const one of list.getEntries()) sum += one.value; }).observe({type: 'layout-shift', buffered: true}); \
                      setTimeout(() => done(sum), 100); })";
        self.value(shifts).await.as_f64().unwrap()
    }

    /// Number of windows and tabs.
    pub(super) async fn windows(&self) -> usize {
        let request = self.http.get(format!("{}/window/handles", self.session));
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["value"].as_array().unwrap().len()
    }

    async fn press(&self, actions: Vec<Value>) {
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.ask(Method::POST, "/actions", &json!({"actions": [keyboard]}))
            .await;
    }

    /// Ends the browser, which outlives the driver otherwise. The driver answers when it has ended.
    fn end(&self) -> std::io::Result<()> {
        let address = self.session.trim_start_matches("http://");
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        let mut connection = TcpStream::connect(host)?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            connection,
            "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        connection.read_exact(&mut [0])
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.end();
        let pid = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.driver.wait();
    }
}
