use std::fs;

use serde_json::json;

use super::super::evaluator_tests::{
    EvaluatorCase, assert_only_reference_passes, assert_scores, assert_upstream, audited_replies,
    checkout, score_all,
};
use super::*;

/// A checkout made for these tests.
fn small() -> (tempfile::TempDir, AnswerSuite) {
    let root = tempfile::tempdir().unwrap();
    let row = |answer: &str, keyword: &str, choices: &[&str]| {
        json!({
            "context": "c", "question": "q", "answer": answer, "data": ["/data/qrdata/data/a.csv"],
            "metadata": {
                "keywords": [keyword],
                "question_type": if choices.is_empty() { "numerical" } else { "multiple_choice" },
                "multiple_choices": choices,
            },
        })
    };
    let rows = json!([
        row("0.20", "Statistics", &[]),
        row("4.00", "Causality", &[]),
        row("C", "Causality", &["a", "b", "c"]),
        row("1691", "Statistics", &[]),
        row("5.36%", "Causality", &[]),
    ]);
    for (path, text) in [
        (QUESTIONS, rows.to_string()),
        ("data/data/qrdata/data/a.csv", "x\n1\n".to_owned()),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let suite = open(root.path()).unwrap();
    (root, suite)
}

#[test]
fn replies_are_scored() {
    let (_root, suite) = small();
    let cases = [
        (0, "So <answer>0.20</answer>", true, true),
        (0, "<answer> 0.2\n</answer>", true, true),
        (0, "<answer>0.2049</answer>", true, true),
        (0, "<answer>20%</answer>", false, false),
        (0, "<answer>0.21</answer>", false, false),
        (0, "0.20", false, false),
        (0, "", false, false),
        (0, "<answer>0.20</answer><answer>0.30</answer>", true, false),
        (0, "<answer>0.20</answer><answer>.2</answer>", true, true),
        (
            0,
            "<answer>0.30</answer><answer>0.20</answer>",
            false,
            false,
        ),
        (0, "</python><answer>0.20</answer>", false, false),
        (0, "</answer><answer>0.20</answer>", false, false),
        (1, "<answer>4.11</answer>", true, true),
        (1, "<answer>4.12</answer>", false, false),
        (1, "<answer>nan</answer>", false, false),
        (1, "<answer>4_0</answer>", true, false),
        (2, "<answer>c</answer>", true, true),
        (2, "<answer>C. No</answer>", false, false),
        (3, "<answer>1700</answer>", true, false),
        (3, "<answer>1691.0</answer>", true, true),
        (4, "<answer>5.36%</answer>", true, true),
        (4, "<answer>5.36</answer>", false, false),
    ];
    assert_scores(&suite.questions, &cases);
}

#[test]
fn references_pass_and_prompts_and_wrong_answers_fail() {
    let (root, suite) = small();
    for question in &suite.questions {
        assert_only_reference_passes(question.as_ref());
        assert_eq!(question.files().unwrap()[0].0, "a.csv");
    }
    assert_eq!(suite.questions[1].category(), "causal, numerical");
    assert_eq!(suite.questions[2].category(), "causal, multiple choice");
    fs::remove_file(root.path().join("data/data/qrdata/data/a.csv")).unwrap();
    let error = suite.questions[0].files().unwrap_err();
    assert!(error.contains("a.csv"), "{error}");
    fs::write(root.path().join(QUESTIONS), "[\n{}]").unwrap();
    let error = open(root.path()).err().unwrap();
    assert!(error.contains("qrdata.json: missing field"), "{error}");
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn fuzz_replies() {
    let (_root, suite) = small();
    bolero::check!().for_each(|bytes: &[u8]| {
        score_all(&suite.questions, &String::from_utf8_lossy(bytes));
    });
}

/// Their extraction of the answer, taken out of a class whose other methods need a server, and their comparison.
const PROGRAM: &str = r#"
import ast, importlib, json, re, sys, types
from typing import *
root = sys.argv[1]
package = types.ModuleType("metrics")
package.__path__ = [root + "/dsgym/eval/metrics"]
sys.modules["metrics"] = package
metric = importlib.import_module("metrics.exact_match").ExactMatchMetric(numeric_tolerance=0.03)
source = open(root + "/dsgym/agents/environment/envs/allocated_code/env.py", encoding="utf-8").read()
wanted = ("_postprocess_action", "_extract_final_answer")
found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name in wanted]
assert len(found) == 2
exec(compile(ast.Module(found, []), "env.py", "exec"))
results = []
for reply, truth in json.load(sys.stdin):
    answer = _extract_final_answer(None, _postprocess_action(None, reply))
    results.append(metric._safe_evaluate(answer, truth).score == 1.0)
print(json.dumps(results))
"#;

/// Right, wrong and malformed replies.
fn planted(question: &dyn Question) -> Vec<String> {
    let expected = question.expected();
    let mut replies = audited_replies(question);
    let answers = [
        expected.to_uppercase(),
        expected.to_lowercase(),
        format!("\u{a0}{expected}\u{1c}\n"),
        format!("+{expected}"),
        format!("{expected}0"),
        format!("{expected}."),
        format!("{expected}e0"),
        format!("{expected}e400"),
        format!("{expected}%"),
        format!("${expected}"),
        format!("[{expected}]"),
        format!("'{expected}'"),
        format!("{{[]: {expected}}}"),
        expected.trim_end_matches('%').to_owned(),
        expected.replace('.', "_0."),
        expected.replace("0.", "."),
        expected.replace('.', ","),
        "nan".to_owned(),
        "-Infinity".to_owned(),
    ];
    let number = expected.parse::<f64>().ok();
    let off = [
        0.97, 0.970_001, 0.98, 1.000_01, 1.01, 1.029_99, 1.03, 1.030_01, -1.0,
    ];
    let off = off
        .iter()
        .filter_map(|factor| number.map(|n| (n * factor).to_string()));
    replies.extend(answers.into_iter().chain(off).map(|one| tagged(&one)));
    let reference = question.reference();
    replies.extend([
        format!("</answer>{reference}"),
        format!("x</python>{reference}"),
        format!("{reference}</python>"),
        format!("<answer>{reference}"),
        reference.replace("</answer>", ""),
        reference.replace("<answer>", "<ANSWER>"),
    ]);
    replies
}

#[test]
fn the_upstream_score_equals_the_authors_evaluator() {
    let Some(root) = checkout(&ENTRY) else { return };
    let suite = open(&root).unwrap();
    assert_eq!(suite.questions.len(), 251);
    let mut cases = Vec::new();
    for question in &suite.questions {
        for reply in planted(question.as_ref()) {
            assert!(question.upstream(&reply) == Some(true) || question.strict(&reply).is_err());
            cases.push(EvaluatorCase {
                question: question.as_ref(),
                asked: json!([reply, question.expected()]),
                reply,
            });
        }
    }
    let passed = assert_upstream(PROGRAM, &root, &cases);
    assert!(passed > 1_000, "{passed}");
}
