//! CodeAct's and E2B's clients, and the description of all routes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pybench_net::git_origin::Origin;
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_testing::skip;
use reqwest::Method;
use serde_json::{Value, json};

use super::{TOKEN, serve};

#[tokio::test(flavor = "multi_thread")]
async fn codeact_clients_are_answered_as_by_its_engine() {
    let Some(server) = serve(&["--no-token"]) else {
        return;
    };
    let ask = async |conversation: Value, code: &str| {
        let answer = server.codeact(conversation, code).await;
        let new = answer["new_kernel_created"].as_bool().unwrap();
        (answer["result"].as_str().unwrap().to_owned(), new)
    };
    let a = json!("a");
    assert_eq!(
        ask(a.clone(), "x = 20").await,
        (
            "[Code executed successfully with no output]".to_owned(),
            true
        )
    );
    assert_eq!(
        ask(a.clone(), "print(x)\nx + 1").await,
        ("20\n21".to_owned(), false)
    );
    let (text, new) = ask(json!(7), "x").await;
    assert!(
        new && text.contains("NameError: name 'x' is not defined"),
        "{text}"
    );
    assert!(!ask(json!("7"), "1").await.1);
    let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
    let (text, _) = ask(a, plot).await;
    assert!(
        text.contains("<Figure size") && text.contains("![image](data:image/png;base64,iVBOR"),
        "{text:.200}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn codeact_cells_that_take_too_long_say_so() {
    let Some(server) = serve(&["--no-token", "--cell-seconds", "5"]) else {
        return;
    };
    server.codeact(json!("a"), "x = 20").await;
    let late = server
        .codeact(json!("a"), "print(1)\nwhile True: pass")
        .await;
    assert_eq!(late["result"], "[Execution timed out (5 seconds).]");
    assert_eq!(server.codeact(json!("a"), "x").await["result"], "20");
}

/// CodeAct's demo.
const CODEACT: Origin = Origin {
    repository: "https://github.com/xingyaoww/code-act.git",
    commit: "d607f56c9cfe9e8632ebaf65dcaf2b4b7fe1c6f8",
    files: &["scripts/chat/demo.py"],
    license: "MIT",
    cache: "tests/code-act",
};

/// A folder with CodeAct's demo: from the clone that `PYBENCH_CODEACT` names, or in the cache, into which it is fetched. `None`
/// where there is no network, and the test is skipped.
async fn codeact_checkout() -> Option<PathBuf> {
    if let Some(clone) = std::env::var_os("PYBENCH_CODEACT") {
        return Some(codeact_files(Path::new(&clone)));
    }
    let folder = CODEACT.checkout_dir(&pybench_run::default_cache_dir());
    let fetch = CODEACT.fetch(CODEACT.repository, &folder);
    match tokio::time::timeout(Duration::from_secs(60), fetch).await {
        Ok(Ok(())) => return Some(folder),
        Ok(Err(error)) => skip::unavailable(error),
        Err(_) => skip::unavailable("github.com has not answered for a minute"),
    }
    None
}

/// A folder with the files of [`CODEACT`] as a clone has them at that commit. The clone may be bare, and may lack other files.
fn codeact_files(clone: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("code-act");
    for file in CODEACT.files {
        let blob = format!("{}:{file}", CODEACT.commit);
        let mut git = Command::new("git");
        git.arg("-C").arg(clone).args(["cat-file", "blob", &blob]);
        let output = git.output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "PYBENCH_CODEACT: {said}");
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, output.stdout).unwrap();
    }
    folder
}

/// Two questions to CodeAct's demo, `scripts/chat/demo.py`, with a model that runs one cell for each: variables stay, and the
/// demo gets the output.
#[tokio::test(flavor = "multi_thread")]
async fn codeact_demo_works_unmodified() {
    let Some(checkout) = codeact_checkout().await else {
        return;
    };
    let demo = checkout.join("scripts/chat/demo.py");
    let Some(python) = pybench_testing::python::environment("codeact") else {
        return;
    };
    let Some(server) = serve(&[]) else {
        return;
    };
    let model = Endpoint::start(|request| std::future::ready(codeact_reply(&request))).await;
    let url = server
        .url
        .replace("http://", &format!("http://user:{TOKEN}@"));
    let mut command = tokio::process::Command::new(python);
    command
        .arg(demo)
        .args(["--model_name", "m", "--openai_base_url", &model.base_url()])
        .args(["--jupyter_kernel_url", &format!("{url}/execute")])
        .current_dir(server.folder.path())
        .env_clear()
        .envs([
            ("OPENAI_API_BASE", model.base_url().as_str()),
            ("OPENAI_API_KEY", "none"),
        ])
        .envs([("LANG", "C.UTF-8"), ("HOME", "/nonexistent")])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    let questions = b"x = 20;\nx + 1\nexit\n";
    tokio::io::AsyncWriteExt::write_all(&mut input, questions)
        .await
        .unwrap();
    drop(input);
    let output = running.wait_with_output().await.unwrap();
    let (text, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(
        text.matches("New kernel created for conversation").count(),
        1,
        "{text}"
    );
    let saved = server.folder.path().join("conv_data");
    let saved = saved.read_dir().unwrap().next().unwrap().unwrap().path();
    let messages: Vec<Value> = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    let outputs = messages.iter().filter_map(|message| {
        message["content"]
            .as_str()?
            .strip_prefix("Execution Output:\n")
    });
    let outputs: Vec<_> = outputs.collect();
    assert_eq!(
        outputs,
        ["[Code executed successfully with no output]", "21"]
    );
}

/// Runs the last question as a cell, and ends with an answer when its output is there.
fn codeact_reply(request: &Value) -> Answer {
    let last = request["messages"].as_array().unwrap().last().unwrap();
    let content = last["content"].as_str().unwrap();
    let reply = match content.starts_with("Execution Output:") {
        true => "That is all.".to_owned(),
        false => format!("<execute> {content} </execute>"),
    };
    Answer::Content(reply)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn e2b_client_works_unmodified() {
    let Some(python) = pybench_testing::python::environment("e2b") else {
        return;
    };
    let Some(server) = serve(&["--per-client", "6"]) else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/http/e2b_client.py");
    let output = Command::new(python)
        .arg(script)
        .args([&server.url, TOKEN])
        .current_dir(server.folder.path())
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert_eq!(
        text.lines().filter(|line| line.starts_with("ok ")).count(),
        11,
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_served_description_names_every_route() {
    let Some(server) = serve(&[]) else {
        return;
    };
    let (status, document) = server.get("/openapi.json").await;
    assert_eq!(status, 200);
    let mut known = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path
            .replace("{id}", "none")
            .replace("{path}", "none")
            .replace("{method}", "Stat");
        for method in operations.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let response = server.request(method.clone(), &path).send().await.unwrap();
            let (status, text) = (response.status(), response.text().await.unwrap());
            assert!(
                status != 405 && !text.contains("this route was not found"),
                "{method} {path}: {status}"
            );
            known += 1;
        }
    }
    assert!(known > 25, "{known}");
}
