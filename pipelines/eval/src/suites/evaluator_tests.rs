//! What tests of suites share: checks of scores, an environment with real sessions, and evaluators of fetched benchmarks, run
//! with Python.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pybench_checks::Checker;
use pybench_interpreter::default_cache_dir;
use pybench_net::git_origin::own_checkout;
use pybench_run::{ExecutorOptions, Interrupt, LocalExecutor, Progress, RunError, RunFolder};
use pybench_testing::sessions::default_interpreter;
use pybench_testing::skip;
use serde_json::{Value, json};

use super::answers::Question;
use super::{Entry, Place};
use crate::suite::SuiteEnv;

/// What a suite works with, if sessions run here; its run folder is `folder`.
pub(super) fn env(folder: &Path) -> Option<SuiteEnv> {
    let interpreter = default_interpreter()?;
    let folder = Arc::new(RunFolder::open(folder, "").unwrap());
    Some(SuiteEnv {
        checker: Checker::new(interpreter.clone()).unwrap(),
        executor: LocalExecutor::new(
            folder.clone(),
            ExecutorOptions::default(),
            Progress::hidden(),
            Interrupt::new(),
        ),
        interpreter,
        folder,
    })
}

/// The checkout of a benchmark; if it is not here, the test is skipped. Where `PYBENCH_SUITES` names a folder
/// without it, each value of `PYBENCH_REQUIRE_ALL` makes that a failure.
pub(super) fn checkout(entry: &Entry) -> Option<PathBuf> {
    let place = Place {
        cache: &default_cache_dir(),
        project: None,
        pybench: None,
        pybench_tasks: None,
    };
    let missing = |error: RunError| match own_checkout(entry.name) {
        Some(_) => skip::missing_tool(error),
        None => skip::unavailable(error),
    };
    entry.checkout(&place).map_err(missing).ok()
}

/// A test that compares with an evaluator runs again in a process of its own, where `PYBENCH_SUITES` names an empty folder.
#[test]
fn a_benchmark_that_a_named_folder_lacks_is_a_failure_where_tests_are_required() {
    let folder = tempfile::tempdir().unwrap();
    let run = |required: &str| {
        let test = "suites::gsm8k::tests::the_upstream_score_equals_the_authors_evaluator";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        command.env("PYBENCH_SUITES", folder.path());
        command.env("PYBENCH_REQUIRE_ALL", required);
        let output = command.env_remove("PYBENCH_SKIPS").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (passed, said) = run("");
    assert!(passed && said.contains("1 passed"), "{said}");
    assert!(said.contains("skipped: "), "{said}");
    for required in ["1", "tools"] {
        let (passed, said) = run(required);
        assert!(!passed, "{said}");
        assert!(said.contains("eval fetch --suite gsm8k"), "{said}");
    }
}

/// Checks scores: the place of a question, a reply, and whether `upstream` and `strict` accept it.
pub(super) fn assert_scores(questions: &[Arc<dyn Question>], cases: &[(usize, &str, bool, bool)]) {
    for (at, reply, upstream, strict) in cases {
        let question = &questions[*at];
        assert_eq!(question.upstream(reply), Some(*upstream), "{reply}");
        assert_eq!(question.strict(reply).is_ok(), *strict, "{reply}");
    }
}

/// The reference passes `strict`; a copy of the prompt and the wrong answers of the audit fail.
pub(super) fn assert_only_reference_passes(question: &dyn Question) {
    question.strict(&question.reference()).unwrap();
    assert!(question.strict(&question.prompt()).is_err());
    for (name, reply) in question.mutants() {
        assert!(question.strict(&reply).is_err(), "{name}: {reply}");
    }
}

/// Scores a reply to each question and ignores the scores, for tests with random replies.
pub(super) fn score_all<Q: Question + ?Sized>(questions: &[Arc<Q>], reply: &str) {
    for question in questions {
        let _ = (question.upstream(reply), question.strict(reply));
    }
}

/// The replies of the audit: wrong answers, the reference, a copy of the prompt and no reply.
pub(super) fn audited_replies(question: &dyn Question) -> Vec<String> {
    let wrong = question.mutants().into_iter().map(|(_, reply)| reply);
    let others = [question.reference(), question.prompt(), String::new()];
    wrong.chain(others).collect()
}

/// A reply to a question, and how the authors' evaluator is asked about it.
pub(super) struct EvaluatorCase<'a> {
    pub(super) question: &'a dyn Question,
    pub(super) reply: String,
    pub(super) asked: Value,
}

/// Asks the authors' evaluator, and compares its verdicts with our `upstream` scores. Returns how many passed.
pub(super) fn assert_upstream(
    program: &str,
    evaluator: &Path,
    cases: &[EvaluatorCase<'_>],
) -> usize {
    let asked: Vec<&Value> = cases.iter().map(|case| &case.asked).collect();
    let theirs = ask(program, evaluator, &json!(asked));
    let theirs = theirs.as_array().unwrap();
    assert_eq!(theirs.len(), cases.len());
    let mut passed = 0;
    for (case, theirs) in cases.iter().zip(theirs) {
        let EvaluatorCase {
            question, reply, ..
        } = case;
        let ours = question.upstream(reply);
        assert_eq!(ours, theirs.as_bool(), "{}: {reply}", question.name());
        passed += usize::from(ours == Some(true));
    }
    eprintln!("{} compared, {passed} of them passed", cases.len());
    passed
}

/// Runs a program with `python3`: JSON in, JSON out.
pub(super) fn ask(program: &str, evaluator: &Path, question: &Value) -> Value {
    ask_python(Path::new("python3"), program, evaluator, question)
}

/// As [`ask`], with another interpreter of Python.
pub(super) fn ask_python(
    python: &Path,
    program: &str,
    evaluator: &Path,
    question: &Value,
) -> Value {
    let mut child = Command::new(python)
        .args(["-W", "ignore", "-c", program])
        .arg(evaluator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = question.to_string();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}
