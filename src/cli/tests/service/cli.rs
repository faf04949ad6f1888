//! The program `pybench` as users meet it, and the documented exit codes.

use std::path::Path;
use std::process::Output;

use pybench_run::ExitCode;
use pybench_testing::ROOT;
use pybench_testing::program::write_program;
use serde_json::Value;

use crate::support::{PYBENCH, pybench};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn help_lists_every_command_in_groups() {
    let output = pybench("--help").output().unwrap();
    assert_eq!(code(&output), Some(0));
    insta::assert_snapshot!(text(&output.stdout));
}

#[test]
fn errors_send_no_control_characters_to_the_terminal() {
    let output = pybench("show").arg("\u{1b}]0;owned\u{7}").output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(code(&output), Some(ExitCode::BadInput as i32), "{errors}");
    assert!(errors.contains("␛]0;owned"), "{errors}");
    assert!(
        !errors.contains(|c: char| c.is_control() && c != '\n'),
        "{errors:?}"
    );
}

#[test]
fn every_command_has_a_help_of_its_own() {
    for command in [
        "synthesize",
        "crawl",
        "query",
        "rollout",
        "grade",
        "shard",
        "library",
        "worker",
        "run",
        "status",
        "show",
        "studio",
        "stats",
        "dataset",
        "verify",
        "chat",
        "eval",
        "loop",
        "publish",
        "doctor",
        "interpreter",
        "completions",
        "man",
    ] {
        let output = pybench(command).arg("--help").output().unwrap();
        assert_eq!(code(&output), Some(0), "{command}");
        let help = text(&output.stdout);
        assert!(
            help.contains(&format!("Usage: pybench {command}")),
            "{help}"
        );
    }
}

#[test]
fn without_a_command_the_help_is_shown() {
    let output = std::process::Command::new(PYBENCH).output().unwrap();
    assert_eq!(code(&output), Some(ExitCode::Usage as i32));
    assert!(text(&output.stderr).contains("Usage: pybench"));
    assert!(output.stdout.is_empty());
}

#[test]
fn an_unknown_command_is_refused_with_a_suggestion() {
    let output = pybench("crwal").output().unwrap();
    assert_eq!(code(&output), Some(ExitCode::Usage as i32));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("crwal") && stderr.contains("crawl"),
        "{stderr}"
    );
}

#[test]
fn the_trainer_gets_its_arguments_and_gives_its_exit_code() {
    // In a folder of its own, so that a trainer built beside it is not found; linked, as a copy would
    // be open for writing in whatever another test forks meanwhile.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("pybench");
    std::fs::hard_link(PYBENCH, &program).unwrap();
    let run = || {
        let mut command = std::process::Command::new(&program);
        command.args(["train", "smollm2", "--dry-run"]);
        command.env("PATH", "/usr/bin:/bin").output().unwrap()
    };
    let output = run();
    assert_eq!(code(&output), Some(ExitCode::Environment as i32));
    assert!(text(&output.stderr).contains("./justw train"));
    let trainer = folder.path().join("pybench-train");
    write_program(&trainer, "#!/bin/sh\necho \"$*\"\nexit 7\n");
    let output = run();
    assert_eq!(code(&output), Some(7));
    assert_eq!(text(&output.stdout), "run smollm2 --dry-run\n");
}

#[test]
fn completions_and_manual_pages_are_generated() {
    for shell in ["bash", "fish", "zsh"] {
        let output = pybench("completions").arg(shell).output().unwrap();
        assert_eq!(code(&output), Some(0));
        assert!(text(&output.stdout).contains("synthesize"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = pybench("man").arg(folder.path()).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.path().join("pybench-synthesize.1")).unwrap();
    assert!(page.contains(".TH"));
}

#[test]
fn exit_codes_are_those_documented() {
    let document = std::fs::read_to_string(Path::new(ROOT).join("docs/exit-codes.md")).unwrap();
    let documented: Vec<(u8, String)> = document
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some((cells.next()?.parse().ok()?, cells.next()?.to_owned()))
        })
        .collect();
    let real: Vec<(u8, String)> = ExitCode::ALL
        .iter()
        .map(|code| (*code as u8, format!("{code:?}")))
        .collect();
    assert_eq!(documented, real);
}

#[test]
fn the_doctor_reports() {
    let output = pybench("doctor").arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let works = |tier: &Value| tier["state"] != "missing";
    let usable = report["tiers"].as_array().unwrap().iter().any(works);
    assert_eq!(code(&output), Some(if usable { 0 } else { 4 }));
    assert_eq!(usable, pybench_testing::sessions::interpreter().is_some());
    let names: Vec<&str> = report["system"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"ffmpeg") && names.contains(&"CJK fonts"),
        "{names:?}"
    );
}
