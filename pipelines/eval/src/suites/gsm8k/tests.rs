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
    let rows = [
        ("What is 3 + 4?", "3+4=<<3+4=7>>7\n#### 7"),
        ("1000 + 125?", "#### 1,125"),
        ("2 - 5?", "#### -3"),
    ];
    let rows = rows.map(|(question, answer)| {
        json!({"question": question, "answer": answer}).to_string() + "\n"
    });
    write(root.path(), &rows.concat());
    let suite = open(root.path()).unwrap();
    (root, suite)
}

fn write(root: &Path, text: &str) {
    let path = root.join(QUESTIONS);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn replies_are_scored() {
    let (_root, suite) = small();
    let cases = [
        (0, "It is 7.\n#### 7", true, true),
        (0, "#### 7.0", false, true),
        (0, "#### $7", false, true),
        (0, "#### **7**", false, true),
        (0, "#### 7 apples", true, true),
        (0, "#### 7 or 8", true, false),
        (0, "#### 7\n#### 8", true, false),
        (0, "#### 8\n#### 7", false, false),
        (0, "#### 7\nThat is,\n#### 7.", true, true),
        (0, "####7", false, true),
        (0, "#### seven", false, false),
        (0, "#### 7th of 12", true, false),
        (0, "#### -7", false, false),
        (0, "#### 7,0", false, false),
        (0, "7", false, false),
        (0, "", false, false),
        (1, "#### 1125", true, true),
        (1, "#### 1,125", true, true),
        (1, "#### 11,25", true, false),
        (1, "#### $1,125.00 in all", false, true),
        (2, "#### -3", true, true),
        (2, "#### -$3", false, true),
        (2, "#### 3", false, false),
    ];
    assert_scores(&suite.questions, &cases);
}

#[test]
fn references_pass_and_prompts_and_wrong_answers_fail() {
    let (root, suite) = small();
    for question in &suite.questions {
        assert_only_reference_passes(question.as_ref());
    }
    for (text, problem) in [
        (
            "{\"question\": \"q\"}\n",
            "test.jsonl:1: missing field `answer`",
        ),
        (
            "{\"question\": \"q\", \"answer\": \"7\"}",
            "question 0: `answer` does not end",
        ),
    ] {
        write(root.path(), text);
        let error = open(root.path()).err().unwrap();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn fuzz_replies() {
    let (_root, suite) = small();
    bolero::check!().for_each(|bytes: &[u8]| {
        score_all(&suite.questions, &String::from_utf8_lossy(bytes));
    });
}

/// Their comparison, taken out of a module that needs a library of tensors.
const PROGRAM: &str = r#"
import ast, json, re, sys
source = open(sys.argv[1] + "/grade_school_math/dataset.py", encoding="utf-8").read()
wanted = ("ANS_RE", "INVALID_ANS", "extract_answer", "is_correct")
def name(node):
    return node.targets[0].id if isinstance(node, ast.Assign) else getattr(node, "name", None)
found = [node for node in ast.parse(source).body if name(node) in wanted]
assert len(found) == 4
exec(compile(ast.Module(found, []), "dataset.py", "exec"))
lines = open(sys.argv[1] + "/grade_school_math/data/test.jsonl", encoding="utf-8")
examples = [json.loads(line) for line in lines]
print(json.dumps([is_correct(reply, examples[task]) for task, reply in json.load(sys.stdin)]))
"#;

/// Right, wrong and malformed replies.
fn planted(question: &dyn Question) -> Vec<String> {
    let expected = question.expected();
    let mut replies = audited_replies(question);
    let answers = [
        format!("{expected}.0"),
        format!("{expected}."),
        format!("${expected}"),
        format!("{expected} dollars"),
        format!(",{expected}"),
        format!(" {expected}"),
        format!("+{expected}"),
        format!("{expected},000"),
        format!("{expected}\u{663}"),
    ];
    replies.extend(answers.iter().map(|one| marked(one)));
    replies.extend([
        format!("{MARK}{expected}"),
        format!("{MARK}\n{expected}"),
        format!("{MARK}# {expected}"),
        format!("so {MARK} x\n{MARK} {expected}"),
    ]);
    replies
}

#[test]
fn the_upstream_score_equals_the_authors_evaluator() {
    let Some(root) = checkout(&ENTRY) else { return };
    let suite = open(&root).unwrap();
    assert_eq!(suite.questions.len(), 1_319);
    let mut cases = Vec::new();
    for (task, question) in suite.questions.iter().enumerate() {
        let replies = planted(question.as_ref()).into_iter();
        cases.extend(replies.map(|reply| EvaluatorCase {
            question: question.as_ref(),
            asked: json!([task, reply]),
            reply,
        }));
    }
    let passed = assert_upstream(PROGRAM, &root, &cases);
    assert!(passed > 5_000, "{passed}");
}
