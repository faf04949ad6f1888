//! The `pybench` program as users meet it, and the documented exit codes.

use std::path::Path;
use std::process::{Command, Output};

use pybench::run::ExitCode;

#[path = "support/program.rs"]
mod program;

use program::write_program;

/// `pybench` with only these programs in its PATH.
fn pybench(path: &Path, args: &[&str]) -> Output {
    // In a folder of its own, so that stages built beside it are not found; linked, as a copy would be
    // open for writing in whatever another test forks meanwhile.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("pybench");
    std::fs::hard_link(env!("CARGO_BIN_EXE_pybench"), &program).unwrap();
    Command::new(program)
        .args(args)
        .env("PATH", path)
        .output()
        .unwrap()
}

fn script(folder: &Path, name: &str, text: &str) {
    write_program(&folder.join(name), &format!("#!/bin/sh\n{text}\n"));
}

fn stages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    script(
        folder.path(),
        "pybench-crawl",
        "echo \"crawled $*\"; exit 7",
    );
    script(folder.path(), "pybench-status", "exit 0");
    script(folder.path(), "unrelated", "exit 0");
    std::fs::write(folder.path().join("pybench-data"), "not executable").unwrap();
    std::fs::write(folder.path().join("pybench-crawl.d"), "a build file").unwrap();
    folder
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn help_lists_the_stages_found() {
    let output = pybench(stages().path(), &["--help"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(text(&output.stdout), @r#"
    Makes, trains and evaluates language models that solve tasks by running Python.

    Usage: pybench <STAGE> [ARGUMENTS]

    Stages, each with a --help of its own:
      crawl
      status
    "#);
}

#[test]
fn without_a_stage_the_usage_is_shown() {
    let output = pybench(stages().path(), &[]);
    assert_eq!(output.status.code(), Some(ExitCode::Usage as i32));
    assert!(text(&output.stderr).contains("Usage: pybench"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_stage_gets_its_arguments_and_gives_its_exit_code() {
    let output = pybench(stages().path(), &["crawl", "--set", "a=b c"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "crawled --set a=b c\n");
}

#[test]
fn an_unknown_stage_is_refused_with_a_suggestion() {
    let output = pybench(stages().path(), &["crwal"]);
    assert_eq!(output.status.code(), Some(ExitCode::Usage as i32));
    let first = text(&output.stderr).lines().next().unwrap();
    assert_eq!(first, "error: no stage `crwal`: did you mean `crawl`?");
    let output = pybench(stages().path(), &["data"]);
    assert_eq!(
        output.status.code(),
        Some(ExitCode::Usage as i32),
        "not executable"
    );
}

#[test]
fn exit_codes_are_those_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/exit-codes.md");
    let document = std::fs::read_to_string(path).unwrap();
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
