//! Benchmarks of questions, from their files to the report, on files made for these tests.

use std::fs;
use std::path::Path;
use std::process::Output;

use pybench_eval::record::{Evaluation, Outcome};
use pybench_eval::run::RESULTS;

use crate::fixture::{of, tools};

const RECIPE: &str = "name = 'questions'
suites = ['wikitablequestions']
[agents.reference]
kind = 'script'
script = 'reference'
[agents.echo]
kind = 'script'
script = 'echo'
";

/// Files in the layout of WikiTableQuestions, and a recipe.
fn project(folder: &Path) {
    let root = folder.join("sets/wikitablequestions");
    fs::create_dir_all(root.join("tagged/data")).unwrap();
    fs::create_dir_all(root.join("csv/1-csv")).unwrap();
    let table = "\"City\",\"People\"\n\"Rome \\\"Roma\\\"\",\"2,800\"\n\"Milan\",\"1,400\"\n";
    fs::write(root.join("csv/1-csv/1.csv"), table).unwrap();
    let lines = [
        "id\tutterance\tcontext\ttargetValue\ttargetCanon\ttargetCanonType",
        "t-0\thow many live in milan?\tcsv/1-csv/1.csv\t1,400\t1400.0\tnumber",
        "t-1\twhich other city?\tcsv/1-csv/1.csv\tRome|Turin\tRome|Turin\tstring",
        "t-2\twhere is the table?\tcsv/1-csv/2.csv\tx\tx\tstring",
    ];
    let questions = root.join("tagged/data/pristine-unseen-tables.tagged");
    fs::write(questions, lines.join("\n")).unwrap();
    fs::write(folder.join("questions.toml"), RECIPE).unwrap();
}

fn eval(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::support::pybench("eval");
    command.args(arguments).current_dir(folder);
    command.args(["--runs-dir", "runs"]);
    command.env("PYBENCH_SUITES", folder.join("sets"));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_benchmark_of_questions_is_run_and_reported() {
    if tools().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let output = eval(folder.path(), &["questions.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = folder.path().join("runs/questions");
    let evaluation = Evaluation::read(&run.join(RESULTS)).unwrap();
    for (agent, passes) in [("reference", true), ("echo", false)] {
        for task in ["t-0", "t-1"] {
            let scores = &of(&evaluation, agent, task).scores;
            assert_eq!(
                (scores.upstream, scores.strict),
                (Some(passes), Some(passes))
            );
        }
        let absent = of(&evaluation, agent, "t-2");
        assert!(
            matches!(&absent.outcome, Outcome::NotRun { reason } if reason.contains("2.csv")),
            "{absent:?}"
        );
    }
    assert_eq!(of(&evaluation, "echo", "t-0").category, "number");
    let report = fs::read_to_string(run.join("report/report.md")).unwrap();
    for part in [
        "CC BY-SA 4.0",
        "evaluator 1.0.2",
        "wikitablequestions: strict",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let page = fs::read_to_string(run.join("report/index.html")).unwrap();
    assert!(page.contains("CC BY-SA 4.0"));
}

#[test]
fn the_audit_names_the_tasks_that_fail_it() {
    if tools().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let suite = [
        "audit",
        "--suite",
        "wikitablequestions",
        "--json",
        "audit.json",
    ];
    let output = eval(folder.path(), &suite);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("2.csv"),
        "{}",
        text(&output.stderr)
    );
    fs::write(
        folder
            .path()
            .join("sets/wikitablequestions/csv/1-csv/2.csv"),
        "\"a\"\n",
    )
    .unwrap();
    let output = eval(folder.path(), &suite);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary = text(&output.stdout);
    assert!(
        summary.contains("3 of 3 references pass `strict`, 3 pass `upstream`"),
        "{summary}"
    );
    let json = fs::read_to_string(folder.path().join("audit.json")).unwrap();
    assert!(json.contains("\"mutants_passing\""), "{json}");
}

#[test]
fn unknown_and_absent_benchmarks_are_errors_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let output = eval(folder.path(), &["questions.toml", "--suite", "wikitables"]);
    let error = text(&output.stderr);
    assert!(
        error.contains("`wikitables` is not a suite: use one of `pybench`"),
        "{error}"
    );
    let output = eval(folder.path(), &["questions.toml", "--suite", "da-dev"]);
    let error = text(&output.stderr);
    assert!(error.contains("eval fetch --suite da-dev"), "{error}");
}
