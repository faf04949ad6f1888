//! Exit codes of the binary (docs/exit-codes.md).

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::run::{Project, newest};
use pybench_test_needs::program::write_program;

fn trainer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-train"));
    command.args(arguments).env("OMP_NUM_THREADS", "1");
    command.env("HF_HUB_OFFLINE", "1");
    command
}

fn expect(code: i32, output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
}

fn code_of(arguments: &[&str], code: i32) {
    expect(code, &trainer(arguments).output().unwrap());
}

fn edit(project: &Project, from: &str, to: &str) {
    let path = project.path("recipe.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    code_of(&[], 2);
    code_of(&["fly"], 2);
    code_of(&["run", "--steps", "3"], 2);
    code_of(&["run", "smollm2", "--processes", "1000"], 2);
    code_of(&["--help"], 0);
    for command in [
        "run", "inspect", "model", "tokens", "serve", "export", "convert",
    ] {
        code_of(&[command, "--help"], 0);
    }
}

#[test]
fn wrong_files_are_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let none = folder.path().join("none").display().to_string();
    let recipe = at("broken.toml", "name = 'a'\nlr = 3\n");
    let data = at("data.jsonl", "not json\n");
    let gguf = at("a.gguf", "GGUF");
    let out = folder.path().join("out").display().to_string();
    let model = crate::support::data("templates/chatml");
    let model = model.to_str().unwrap();
    code_of(&["run", &none], 3);
    code_of(&["run", &recipe], 3);
    code_of(&["model", "no-such-model"], 3);
    code_of(&["inspect", &none, &data], 3);
    code_of(&["tokens", &none, &data], 3);
    code_of(&["serve", &none], 3);
    code_of(&["convert", &gguf, &out], 3);
    code_of(&["convert", &none, &out], 3);
    code_of(&["export", &none, "--gguf", &out], 3);
    code_of(&["probe", model, &data, &out], 3);
    code_of(&["losses", model, &data], 3);
}

#[test]
fn broken_data_and_divergence_are_bad_input() {
    let project = Project::new("max_steps=2");
    let data = project.path("train.jsonl");
    let good = std::fs::read(&data).unwrap();
    std::fs::write(&data, "{}\n").unwrap();
    expect(3, &project.command("out").output().unwrap());
    std::fs::write(&data, good).unwrap();
    edit(
        &project,
        "max_steps=2",
        "max_steps=400\n[optimizer]\nlearning_rate=1e30\nmax_grad_norm=0",
    );
    expect(3, &project.command("out").output().unwrap());
    let start = project.path("start").display().to_string();
    let context = ["serve", &start, "--context", "1000000", "--check"];
    code_of(&context, 2);
}

#[test]
fn what_the_machine_lacks_is_the_environment() {
    let project = Project::new("max_steps=2");
    let mut command = project.command("out");
    command.env("WORLD_SIZE", "2").env("RANK", "7");
    expect(4, &command.output().unwrap());
    let start = project.path("start").display().to_string();
    let mut command = trainer(&["serve", &start, "--engine", "vllm"]);
    expect(4, &command.env("PATH", "/nowhere").output().unwrap());
    if !tch::Cuda::is_available() {
        code_of(&["serve", &start, "--device", "cuda"], 4);
    }
    // A port that is in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    code_of(&["serve", &start, "--port", &port], 4);
}

#[test]
fn an_unreachable_hub_is_an_endpoint() {
    let cache = tempfile::tempdir().unwrap();
    for model in ["nobody/nothing", "smollm2-135m-instruct"] {
        let mut command = trainer(&["model", model]);
        command
            .env_remove("HF_HUB_OFFLINE")
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env("HF_HOME", cache.path())
            .env("PYBENCH_CACHE", cache.path())
            .env("UV_OFFLINE", "1")
            .env("UV_INDEX_URL", "http://127.0.0.1:9/simple")
            .env("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
            .env("UV_HTTP_TIMEOUT", "2");
        expect(5, &command.output().unwrap());
    }
}

#[test]
fn a_folder_of_another_recipe_is_a_conflict() {
    let project = Project::new("max_steps=2\n[checkpoint]\nsave_steps=1");
    assert!(project.run("out").0);
    edit(&project, "max_steps=2", "max_steps=3");
    expect(8, &project.command("out").output().unwrap());
}

#[test]
fn the_code_of_the_evaluation_is_passed_on() {
    let project = Project::new("max_steps=1");
    let program = project.path("evaluation");
    std::fs::write(project.path("eval.toml"), "name='mine'\n").unwrap();
    let text = format!(
        "[agent_eval]\nrecipe='eval.toml'\nprogram='{}'\n[train]",
        program.display()
    );
    edit(&project, "[train]", &text);
    expect(4, &project.command("out").output().unwrap());
    for code in [5, 130] {
        write_program(&program, &format!("#!/bin/sh\nexit {code}\n"));
        expect(code, &project.command("out").output().unwrap());
    }
}

fn signal(child: &std::process::Child, signal: &str) {
    // The program `kill` is missing on a minimal Debian; the shell has its own.
    let kill = format!("kill {signal} {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(status.success());
}

/// Starts a run, sends a signal after its first checkpoint, and returns its exit code.
fn interrupt(command: &mut Command, out: &Path, name: &str) -> Option<i32> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while newest(out).is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(&child, name);
    child.wait().unwrap().code()
}

#[test]
fn an_interrupted_run_saves_its_step_and_continues_with_the_same_bits() {
    let project = Project::new("batch_size=2\nmax_steps=60\n[checkpoint]\nsave_steps=25");
    assert!(project.run("whole").0);
    for (out, name) in [("first", "-INT"), ("second", "-TERM")] {
        let folder = project.path(out);
        let code = interrupt(&mut project.command(out), &folder, name);
        assert_eq!(code, Some(130));
        let step = newest(&folder).unwrap();
        assert_ne!(step, "step-00000060");
        expect(0, &project.command(out).output().unwrap());
        let weights = |out: &str| {
            let path = project.path(out).join("model/model.safetensors");
            std::fs::read(path).unwrap()
        };
        assert!(weights("whole") == weights(out), "{name}");
    }
}

#[test]
fn several_processes_are_interrupted_together() {
    let project = Project::new("batch_size=2\nmax_steps=400\n[checkpoint]\nsave_steps=5");
    let mut command = project.command("out");
    command.args(["--processes", "2"]);
    let code = interrupt(&mut command, &project.path("out"), "-INT");
    assert_eq!(code, Some(130));
}

/// A trainer that was told to stop writes its checkpoint first; the next one reads that.
#[test]
fn a_run_waits_for_the_trainer_before_it() {
    use std::io::{BufRead, BufReader};
    let project = Project::new("batch_size=2\nmax_steps=4");
    let out = project.path("out");
    std::fs::create_dir_all(&out).unwrap();
    let held = std::fs::File::create(out.join("lock")).unwrap();
    held.lock().unwrap();
    let mut command = project.command("out");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("waiting for another process")));
    assert!(!out.join("metrics.jsonl").exists() && !out.join("model").exists());
    drop(held);
    assert!(lines.all(|line| !line.starts_with("waiting")));
    assert!(child.wait().unwrap().success());
    assert!(out.join("model").exists());
}

#[test]
fn a_server_ends_on_a_signal() {
    use std::io::{BufRead, BufReader};
    let project = Project::new("max_steps=1");
    let start = project.path("start").display().to_string();
    let mut child = trainer(&["serve", &start, "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("http://"), "{line}");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let project = Project::new("max_steps=1");
    let (model, data) = (project.path("start"), project.path("data.jsonl"));
    let line = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
    std::fs::write(&data, format!("{line}\n").repeat(5000)).unwrap();
    let mut child = trainer(&["tokens", model.to_str().unwrap(), data.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
