use std::fs;

use super::super::evaluator_tests::{assert_only_reference_passes, checkout, score_all};
use super::*;

/// A checkout made for these tests.
fn small() -> (tempfile::TempDir, AnswerSuite) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join(FOLDER)).unwrap();
    write(
        root.path(),
        "formal_logic",
        "\"Is it, then?\",no,yes,maybe,never,B\nTwice?,1,2,3,4,C\n",
    );
    write(
        root.path(),
        "anatomy",
        "\"A \"\"bone\"\"?\",Bach,a b,c.,d,A\n",
    );
    let suite = open(root.path()).unwrap();
    (root, suite)
}

fn write(root: &Path, subject: &str, text: &str) {
    fs::write(root.join(FOLDER).join(format!("{subject}{SUFFIX}")), text).unwrap();
}

#[test]
fn replies_are_scored() {
    let (_root, suite) = small();
    for (task, reply, strict) in [
        (1, "Because of x.\nAnswer: B", true),
        (1, "**Answer:** (b).", true),
        (1, "**Answer: B**", true),
        (1, "The answer is: B. Yes", true),
        (1, "Answer: B) yes.", true),
        (1, "B", true),
        (1, " b\n", true),
        (1, "Answer: B. no", false),
        (1, "Answer: Because", false),
        (1, "Answer: B or C", false),
        (1, "Answer: yes", false),
        (1, "Answer: A", false),
        (1, "Answer:", false),
        (1, "Answer: \u{411}", false),
        (1, "Answer: B\nAnswer: B", true),
        (1, "Answer: B\nNo.\nAnswer: C", false),
        (1, "So it is B.", false),
        (1, "", false),
        (0, "Answer: A. Bach", true),
        (0, "Answer: Bach", false),
    ] {
        let question = &suite.questions[task];
        assert_eq!(question.strict(reply).is_ok(), strict, "{reply}");
        assert_eq!(question.upstream(reply), None);
    }
}

#[test]
fn references_pass_and_prompts_and_wrong_answers_fail() {
    let (root, suite) = small();
    let names: Vec<_> = suite.questions.iter().map(|one| one.name()).collect();
    assert_eq!(names, ["anatomy/0", "formal_logic/0", "formal_logic/1"]);
    assert_eq!(suite.questions[0].category(), "other");
    assert_eq!(suite.questions[1].category(), "humanities");
    assert_eq!(suite.questions[0].texts()[0], "A \"bone\"?");
    for question in &suite.questions {
        assert_only_reference_passes(question.as_ref());
    }
    write(root.path(), "anatomy", "q,a,b,c,d,A\nq,a,b,c,d,E\n");
    let error = open(root.path()).err().unwrap();
    assert!(
        error.contains("anatomy_test.csv: row 2: expected a question"),
        "{error}"
    );
    fs::remove_dir_all(root.path().join(FOLDER)).unwrap();
    fs::create_dir(root.path().join(FOLDER)).unwrap();
    let error = open(root.path()).err().unwrap();
    assert!(
        error.contains("no file is named SUBJECT_test.csv"),
        "{error}"
    );
}

#[test]
fn the_repository_has_the_questions_of_57_subjects() {
    let Some(root) = checkout(&ENTRY) else { return };
    let suite = open(&root).unwrap();
    assert_eq!(suite.questions.len(), 14_079);
    let subjects = subjects(&root).unwrap();
    assert_eq!(subjects.len(), 57);
    for (_, known) in GROUPS {
        assert!(
            known
                .iter()
                .all(|one| subjects.iter().any(|subject| subject == one))
        );
    }
    let others = subjects.iter().filter(|subject| group(subject) == "other");
    assert_eq!(others.count(), 14);
}

#[test]
fn fuzz_replies_and_files() {
    let (_root, suite) = small();
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        score_all(&suite.questions, &text);
        let _ = subject_questions(&text, &"s".into());
    });
}
