//! Benchmarks of questions, from their files to the report, on files made for these tests.

use std::fs;
use std::path::Path;
use std::process::Output;

use pybench_eval::record::{Evaluation, Outcome};
use pybench_eval::run::RESULTS;
use serde_json::Value;

use crate::fixture::{of, tools};
use crate::support::endpoint::{Answer, Endpoint};

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
    eval_command(folder, &[arguments, &["--runs-dir", "runs"]].concat())
}

fn eval_command(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::support::pybench("eval");
    command.args(arguments).current_dir(folder);
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
    let output = eval(folder.path(), &[&suite[..], &["--write"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = folder
        .path()
        .join("docs/suite-audits/wikitablequestions.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("\n| all | 3 | 3 / 3 |"), "{page}");
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

/// Only what is not there is downloaded, after the license is printed. Git is sent to an empty folder instead of the network.
#[test]
fn benchmarks_that_are_absent_are_downloaded_on_request() {
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let run = |flags: &[&str]| {
        let mut command = crate::support::pybench("eval");
        command.args(["questions.toml", "--suite", "da-dev", "--runs-dir", "runs"]);
        command.args(flags).current_dir(folder.path());
        let elsewhere = format!("url.file://{}/.insteadOf", folder.path().display());
        command
            .env_remove("PYBENCH_SUITES")
            .env("PYBENCH_CACHE", folder.path().join("cache"))
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", elsewhere)
            .env("GIT_CONFIG_VALUE_0", "https://github.com/");
        command.output().unwrap()
    };
    let output = run(&["--fetch"]);
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(4), "{printed}{error}");
    assert!(printed.contains("license: "), "{printed}");
    assert!(error.contains("git fetch"), "{error}");
    let refused = run(&[]);
    assert!(!text(&refused.stdout).contains("license: "));
}

/// One command from a benchmark to its report, without a model.
#[test]
fn the_agents_without_a_model_show_what_a_benchmark_gives_away() {
    if tools().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    project(folder.path());
    let output = eval(
        folder.path(),
        &["scripts", "--suite", "wikitablequestions", "--fetch"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        !text(&output.stdout).contains("license: "),
        "nothing is downloaded"
    );
    let run = folder.path().join("runs/scripts");
    let evaluation = Evaluation::read(&run.join(RESULTS)).unwrap();
    let null = [
        "do-nothing",
        "echo",
        "copy-input",
        "empty-files",
        "dump-file",
    ];
    for (agent, passes) in [("reference", true)]
        .into_iter()
        .chain(null.map(|agent| (agent, false)))
    {
        for task in ["t-0", "t-1"] {
            let strict = of(&evaluation, agent, task).scores.strict;
            assert_eq!(strict, Some(passes), "{agent}, {task}");
        }
    }
    assert!(run.join("report/index.html").is_file());
}

/// Files in the layouts of the benchmarks of general ability.
fn general_files(folder: &Path) {
    let function = |name: &str, entry: &str, inputs: &str| {
        format!(
            "{{\"task_id\":\"{name}\",\"prompt\":\"def {entry}(x):\\n\",\"entry_point\":\"{entry}\",\
             \"canonical_solution\":\"    return x * 2\\n\",{inputs},\"atol\":0}}\n"
        )
    };
    let inputs = "\"base_input\":[[1],[2]],\"plus_input\":[[0.5]]";
    let test = "grade_school_math/data/test.jsonl";
    let question = "{\"question\":\"What is 3 + 4?\",\"answer\":\"3+4=7\\n#### 7\"}\n";
    for (path, text) in [
        (
            "humaneval-plus/HumanEvalPlus.jsonl",
            function("HumanEval/0", "double", inputs),
        ),
        (
            "mbpp-plus/MbppPlus.jsonl",
            function("Mbpp/1", "twice", inputs),
        ),
        (&format!("gsm8k/{test}"), question.to_owned()),
        (
            "mmlu/data/test/logic_test.csv",
            "Is it?,no,yes,maybe,never,B\n".to_owned(),
        ),
    ] {
        let path = folder.join("sets").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// The base model is right everywhere; the other one cuts off fractions and cannot add.
fn general_reply(request: &Value) -> Answer {
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "one message, without a system prompt");
    let prompt = messages[0]["content"].as_str().unwrap();
    let tuned = request["model"] == "tuned";
    let double = if tuned { "int(x) * 2" } else { "x * 2" };
    Answer::Content(match prompt {
        p if p.contains("`double`") => {
            format!("```python\ndef double(x):\n    return {double}\n```")
        }
        p if p.contains("`twice`") => {
            "<solution>\ndef twice(x):\n    return x + x\n</solution>".to_owned()
        }
        p if p.contains("3 + 4") => format!("So it is\n#### {}", if tuned { 8 } else { 7 }),
        _ => "**Answer: B**".to_owned(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn general_ability_is_compared_with_the_base_model() {
    if tools().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    general_files(folder.path());
    let endpoint = Endpoint::start(|request| std::future::ready(general_reply(&request))).await;
    let agent = |label: &str| {
        let url = endpoint.base_url();
        format!(
            "agents.{label}={{kind='openai', model='{label}', base_url='{url}', price={{prompt=0.0, completion=0.0}}}}"
        )
    };
    let (base, tuned) = (agent("base"), agent("tuned"));
    let sets = [
        "general",
        "--set",
        "checkpoints=false",
        "--set",
        &base,
        "--set",
        &tuned,
    ];
    let planned = eval(folder.path(), &[&sets[..], &["--dry-run"]].concat());
    let plan = text(&planned.stdout);
    // Six attempts of one call each, whatever number of turns a rollout has.
    assert!(plan.contains("calls              6\n"), "{plan}");
    assert!(plan.contains("(message format single_reply)"), "{plan}");
    let output = eval(folder.path(), &sets);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // A program answers two suites.
    assert_eq!(endpoint.call_count(), 8);
    let run = folder.path().join("runs/general");
    let evaluation = Evaluation::read(&run.join(RESULTS)).unwrap();
    for (suite, base, tuned, has_upstream) in [
        ("humaneval", true, true, true),
        ("humaneval-plus", true, false, true),
        ("mbpp", true, true, true),
        ("mbpp-plus", true, true, true),
        ("gsm8k", true, false, true),
        ("mmlu", true, true, false),
    ] {
        for (agent, passed) in [("base", base), ("tuned", tuned), ("reference", true)] {
            let mut attempts = evaluation.attempts.iter();
            let attempt = attempts.find(|one| one.suite == suite && one.agent == agent);
            let scores = &attempt.unwrap().scores;
            assert_eq!(scores.strict, Some(passed), "{suite}, {agent}");
            assert_eq!(
                scores.upstream,
                has_upstream.then_some(passed),
                "{suite}, {agent}"
            );
        }
    }
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let card = format!("tuned={}", model.display());
    let output = eval_command(
        folder.path(),
        &["report", "runs/general", "--base", "base", "--card", &card],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let card = fs::read_to_string(model.join("README.md")).unwrap();
    assert!(card.contains("## General ability"), "{card}");
    assert!(card.contains("| gsm8k | 1 | 100.0 | 0.0 |"), "{card}");
}

#[test]
fn absent_files_of_general_ability_are_an_error_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    general_files(folder.path());
    fs::remove_dir_all(folder.path().join("sets/mbpp-plus")).unwrap();
    let output = eval(folder.path(), &["general", "--set", "checkpoints=false"]);
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(error.contains("eval fetch --suite mbpp-plus"), "{error}");
}
