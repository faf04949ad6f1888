use std::fs;

use serde_json::{Value, json};

use super::super::answers::read_text;
use super::super::evaluator_tests::{ask, assert_only_reference_passes, checkout, score_all};
use super::*;

/// A checkout made for these tests.
fn small() -> (tempfile::TempDir, AnswerSuite) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(TABLES)).unwrap();
    fs::write(root.path().join(TABLES).join("a b.csv"), "x\n1\n").unwrap();
    let question = |id: u32, level: &str| {
        json!({"id": id, "question": "q", "concepts": [], "constraints": "c", "format": "@mean[mean_value]",
            "file_name": "a b.csv", "level": level})
        .to_string()
    };
    let questions = [
        question(0, "easy"),
        question(1, "hard"),
        question(5, "easy"),
    ]
    .join("\n");
    let labels = [
        json!({"id": 0, "common_answers": [["mean", "34.65"], ["type", "linear"]]}),
        json!({"id": 1, "common_answers": [["list", "["]]}),
        json!({"id": 5, "common_answers": [["r", "0.1"], ["r", "0.2"]]}),
    ];
    fs::write(root.path().join(QUESTIONS), questions).unwrap();
    fs::write(
        root.path().join(LABELS),
        labels.map(|label| label.to_string()).join("\n"),
    )
    .unwrap();
    let suite = suite(root.path(), false).unwrap();
    (root, suite)
}

#[test]
fn replies_are_scored() {
    let (root, suite) = small();
    for (task, reply, upstream, strict) in [
        (0, "@mean[34.65] and @type[linear]", Some(true), true),
        (0, "@mean[34.6500] @type[linear]", Some(true), true),
        (0, "@mean[34.66] @type[linear]", Some(false), false),
        (0, "@mean[34.65] @type[Linear]", Some(false), false),
        (0, "@mean[34.65]", Some(false), false),
        (0, "@mean[1] @mean[34.65] @type[linear]", Some(true), false),
        (
            0,
            "@mean[34.65] @mean[34.650] @type[linear]",
            Some(true),
            true,
        ),
        (0, "34.65, linear", Some(false), false),
        (0, "", None, false),
        (1, "@list[[]]", Some(true), true),
        (1, "@list[[]] @mean[mean_value]", Some(true), true),
        (1, "@list[[]] @type[linear]", Some(true), false),
        (1, "@list[]", Some(false), false),
        (2, "@r[0.2]", Some(true), true),
        (2, "@r[0.1]", Some(false), false),
    ] {
        let question = &suite.questions[task];
        assert_eq!(question.upstream(reply), upstream, "{reply}");
        assert_eq!(question.strict(reply).is_ok(), strict, "{reply}");
    }
    for question in &suite.questions {
        assert_only_reference_passes(question.as_ref());
        assert_eq!(question.files().unwrap()[0].0, "a b.csv");
    }
    let verified = super::suite(root.path(), true).unwrap();
    let names: Vec<_> = verified.questions.iter().map(|one| one.name()).collect();
    assert_eq!(names, ["0", "5"], "1 is not in the verified subset");
}

#[test]
fn the_best_constant_answer_names_everything() {
    let (_root, suite) = small();
    let questions: Vec<_> = suite.questions.iter().map(AsRef::as_ref).collect();
    let all = &constants(&questions)[0];
    let upstream = questions
        .iter()
        .filter(|one| one.upstream(all) == Some(true));
    assert_eq!(upstream.count(), 3, "{all}");
    assert!(
        questions.iter().all(|one| one.strict(all).is_err()),
        "{all}"
    );
}

#[test]
fn invalid_files_are_reported_with_their_line() {
    let (root, _) = small();
    fs::write(
        root.path().join(LABELS),
        "{\"id\": 0, \"common_answers\": []}\n{}\n",
    )
    .unwrap();
    let error = suite(root.path(), false).err().unwrap();
    assert!(error.contains("da-dev-labels.jsonl:2:"), "{error}");
    fs::write(
        root.path().join(LABELS),
        "{\"id\": 0, \"common_answers\": []}\n",
    )
    .unwrap();
    let error = suite(root.path(), false).err().unwrap();
    assert!(error.contains("question 1 has no labels"), "{error}");
}

#[test]
fn fuzz_replies() {
    let (_root, suite) = small();
    bolero::check!().for_each(|bytes: &[u8]| {
        score_all(&suite.questions, &String::from_utf8_lossy(bytes));
    });
}

const PROGRAM: &str = r#"
import json, os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import eval_closed_form as evaluator
labels, runs = json.load(sys.stdin)
results = [evaluator.evaluate_responses(labels, run) for run in runs]
print(json.dumps([{
    "correct": {str(result["id"]): all(result["correctness"].values()) for result in run},
    "accuracy": evaluator.evaluate_accuracy_by_question(run),
} for run in results]))
"#;

#[test]
fn the_upstream_score_equals_the_authors_evaluator() {
    let Some(root) = checkout(&ENTRY) else { return };
    let suite = suite(&root, false).unwrap();
    assert_eq!(suite.questions.len(), 257);
    let labels = read_text(&root, LABELS).unwrap();
    let labels: Vec<Value> = labels
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let variants: Vec<fn(&dyn Question) -> String> = vec![
        |question| question.reference(),
        |_| String::new(),
        |_| " ".to_owned(),
        |question| question.prompt(),
        |question| question.reference().replace('[', "[ ").replace(']', " ]"),
        |question| question.reference().replace("0]", "]"),
        |question| question.reference().replace(']', "0]"),
        |question| {
            question
                .reference()
                .replace('[', "[0_0")
                .replace(']', "e0]")
        },
        |question| question.reference().replace('@', "@x"),
        |question| question.reference().replace(']', "\n]"),
        |question| question.reference().to_uppercase(),
        |question| format!("@é[1] @[2] @a[ {}", question.reference()),
    ];
    let mut runs: Vec<Vec<String>> = variants
        .iter()
        .map(|variant| {
            suite
                .questions
                .iter()
                .map(|question| variant(question.as_ref()))
                .collect()
        })
        .collect();
    for number in 0..8 {
        let mutant = |question: &dyn Question| {
            let mutants = question.mutants();
            mutants[number % mutants.len()].1.clone()
        };
        runs.push(
            suite
                .questions
                .iter()
                .map(|question| mutant(question.as_ref()))
                .collect(),
        );
    }
    // One answer of 257.
    let alone = suite.questions.iter().enumerate();
    runs.push(
        alone
            .map(|(at, one)| {
                if at == 0 {
                    one.reference()
                } else {
                    String::new()
                }
            })
            .collect(),
    );
    let asked: Vec<Vec<Value>> = runs.iter().map(|run| {
        let named = suite.questions.iter().zip(run);
        named.map(|(question, reply)| json!({"id": question.name().parse::<u32>().unwrap(), "response": reply})).collect()
    }).collect();
    let theirs = ask(
        PROGRAM,
        &root.join("examples/DA-Agent/eval_closed_form.py"),
        &json!([labels, asked]),
    );
    let (mut compared, mut passed) = (0, 0);
    for (run, theirs) in runs.iter().zip(theirs.as_array().unwrap()) {
        let mut scores = Vec::new();
        for (question, reply) in suite.questions.iter().zip(run) {
            let ours = question.upstream(reply);
            let correct = theirs["correct"]
                .get(question.name())
                .and_then(Value::as_bool);
            assert_eq!(ours, correct, "{}: {reply}", question.name());
            scores.extend(ours);
            compared += 1;
        }
        let right = scores.iter().filter(|correct| **correct).count();
        passed += right;
        let rate = right as f64 / scores.len().max(1) as f64;
        assert!((rate - theirs["accuracy"].as_f64().unwrap()).abs() < 1e-4);
    }
    assert_eq!(theirs.as_array().unwrap().last().unwrap()["accuracy"], 1.0);
    eprintln!("{compared} compared, {passed} of them passed");
    assert!(passed > 500, "{passed}");
}
