use std::fs;

use rand::prelude::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::super::evaluator_tests::{ask, assert_only_reference_passes, assert_scores, checkout};
use super::*;

/// A checkout made for these tests.
fn small() -> (tempfile::TempDir, AnswerSuite) {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("tagged/data")).unwrap();
    fs::create_dir_all(root.path().join("csv/1-csv")).unwrap();
    let table = "\"City\",\"People\"\n\"Rome (capital)\",\"2,800\"\n\"Milan\",\"1,400\"\n";
    fs::write(root.path().join("csv/1-csv/1.csv"), table).unwrap();
    let lines = [
        "id\tutterance\tcontext\ttargetValue\ttargetCanon\ttargetCanonType",
        "t-0\twhich city is the capital?\tcsv/1-csv/1.csv\tRome\tRome\tstring",
        "t-1\thow many live in milan?\tcsv/1-csv/1.csv\t1,400\t1400.0\tnumber",
        "t-2\twhich cities are there?\tcsv/1-csv/1.csv\tRome|Milan\tRome|Milan\tstring",
        "t-3\ta missing table?\tcsv/1-csv/2.csv\tx\tx\tstring",
    ];
    fs::write(root.path().join(QUESTIONS), lines.join("\n")).unwrap();
    let suite = open(root.path()).unwrap();
    (root, suite)
}

#[test]
fn replies_are_scored() {
    let (_root, suite) = small();
    let cases = [
        (0, "Finished:\nAnswer: Rome", true, true),
        (0, "Finished: Answer: rome.", true, true),
        (0, "**Answer:** \"Rome\"", true, true),
        (0, "Answer: Rome (capital)", true, true),
        (0, "Answer: Rome (or Milan)", true, false),
        (0, "Answer: Milan\nAnswer: Rome", true, true),
        (0, "Answer: Rome\nAnswer: Milan", false, false),
        (0, "Rome", false, false),
        (0, "", false, false),
        (1, "Answer: 1400", true, true),
        (1, "Answer: 1.4e3", true, true),
        (1, "Answer: 1,400", true, true),
        (1, "Answer: 1401", false, false),
        (2, "Answer: milan | rome", true, true),
        (2, "Answer: Rome", false, false),
        (2, "Answer: Rome|Milan|Turin", false, false),
    ];
    assert_scores(&suite.questions, &cases);
}

#[test]
fn references_pass_and_prompts_and_wrong_answers_fail() {
    let (_root, suite) = small();
    for question in &suite.questions[..3] {
        assert_only_reference_passes(question.as_ref());
        let files = question.files().unwrap();
        assert_eq!(files[0].0, "table.csv");
    }
    let error = suite.questions[3].files().unwrap_err();
    assert!(error.contains("csv/1-csv/2.csv"), "{error}");
}

#[test]
fn invalid_questions_are_reported_with_their_line() {
    let root = Arc::new(PathBuf::new());
    let header = "id\tutterance\tcontext\ttargetValue\ttargetCanon\ttargetCanonType";
    for (text, problem) in [
        ("id\tutterance".to_owned(), "line 1: the column `context`"),
        (format!("{header}\nt-0\tq"), "line 2: too few columns"),
        (
            format!("{header}\nt-0\tq\tc\ta|b\ta\tstring"),
            "line 2: the values",
        ),
    ] {
        let error = parse(&text, &root).err().unwrap();
        assert!(error.contains(problem), "{error}");
    }
}

const PROGRAM: &str = include_str!("run_evaluator.py");

#[test]
fn the_comparison_equals_upstreams_on_perturbed_answers() {
    let Some(root) = checkout(&ENTRY) else { return };
    let text = read_text(&root, QUESTIONS).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect());
    let rows: Vec<Vec<&str>> = rows.collect();
    let columns: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    let column = |name| columns.iter().position(|column| *column == name).unwrap();
    let (value, canon) = (column("targetValue"), column("targetCanon"));
    let targets: Vec<_> = rows
        .iter()
        .map(|row| (wiki_tables::list(row[value]), wiki_tables::list(row[canon])))
        .collect();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut cases = Vec::new();
    for at in 0..10_000 {
        let (values, canons) = &targets[at % targets.len()];
        let other = &targets[random.random_range(0..targets.len())].0;
        cases.push((
            values,
            canons,
            perturbed(values, canons, other, &mut random),
        ));
    }
    let theirs = ask(PROGRAM, &root.join("evaluator.py"), &json!(cases));
    let mut passed = 0;
    for ((values, canons, predicted), theirs) in cases.iter().zip(theirs.as_array().unwrap()) {
        let pairs = values.iter().zip(canons.iter());
        let expected = denotation(pairs.map(|(value, canon)| Value::new(value, Some(canon))));
        let found = denotation(predicted.iter().map(|value| Value::new(value, None)));
        let ours = check(&expected, &found);
        let normalized = predicted.iter();
        let normalized = normalized.map(|value| normalize(value, Details::Removed));
        let ours_with_texts = json!([ours, normalized.collect::<Vec<_>>()]);
        assert_eq!(
            ours_with_texts, *theirs,
            "{values:?} {canons:?} {predicted:?}"
        );
        passed += usize::from(ours);
    }
    eprintln!("10000 compared, {passed} of them passed");
    assert!((3_000..8_000).contains(&passed), "{passed}");
}

/// A right, wrong or malformed answer.
fn perturbed(
    values: &[String],
    canons: &[String],
    other: &[String],
    random: &mut ChaCha8Rng,
) -> Vec<String> {
    let mut items: Vec<String> = match random.random_range(0..4) {
        0 => canons.to_vec(),
        1 => other.to_vec(),
        _ => values.to_vec(),
    };
    for item in &mut items {
        for _ in 0..random.random_range(0..3) {
            *item = perturbed_item(item, random);
        }
    }
    match random.random_range(0..10) {
        0 => items.reverse(),
        1 => items.push(items[0].clone()),
        2 => items.push(perturbed_item(&items[0], random)),
        3 => {
            items.pop();
        }
        _ => {}
    }
    items
}

fn perturbed_item(item: &str, random: &mut ChaCha8Rng) -> String {
    const MARKS: &str = "•♦†‡*#+[](){}\"'‘’´`“”-‐‑‒–—−.,_ \u{301}é½²１ßİ\u{a0}\u{85}|\\xX0";
    const WORDS: [&str; 29] = [
        "",
        " ",
        "nan",
        "inf",
        "-Infinity",
        "0",
        "-0",
        "+7",
        "007",
        "1e3",
        "1E400",
        "1_000",
        ".5",
        "5.",
        "1990-xx-xx",
        "xx-01-02",
        "xxxx-1-2",
        "1990-13-01",
        "1990-00-01",
        "1990-1-32",
        "--",
        "xx-xx-xx",
        "123456789012345678901234567890",
        "123456789012345678901234567890.0",
        "[12]",
        "[1][2]",
        "[1]*",
        "*[1]",
        "[0-9]]",
    ];
    const ENDS: [&str; 10] = [
        "[1]", "[note]", "†", " (host)", "(host)", " (a) (b)", ".", "..", " ", "[1] (a)*",
    ];
    let number = item.replace(',', "").trim().parse::<f64>();
    let shifts = [0.0, 1e-7, -1e-7, 9e-7, 1.1e-6, 1e-5, 1.0, -1.0];
    let shift = *shifts.choose(random).unwrap();
    match (random.random_range(0..10), number) {
        (0..=2, Ok(number)) => (number + shift).to_string(),
        (3, Ok(number)) => format!("{number:e}"),
        (0, _) => item.to_uppercase(),
        (1, _) => format!("\"{item}\""),
        (2 | 4, _) => format!("{item}{}", ENDS.choose(random).unwrap()),
        (3 | 5, _) => format!("{}{item}", ENDS.choose(random).unwrap()),
        (6, _) => (*WORDS.choose(random).unwrap()).to_owned(),
        (7, _) => item.replace(' ', " \u{a0}\t"),
        _ => {
            let mut chars: Vec<char> = item.chars().collect();
            let at = random.random_range(0..=chars.len());
            let marks: Vec<char> = MARKS.chars().collect();
            chars.insert(at, *marks.choose(random).unwrap());
            chars.into_iter().collect()
        }
    }
}
