//! The library covers PyBench's abilities and does not copy its texts.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;

use pybench_library::Library;
use serde::Deserialize;

/// Words in a row that tell a copy.
const GRAM: usize = 8;

#[derive(Deserialize)]
struct UpstreamTask {
    index: String,
    category1: String,
    category2: String,
    category3: String,
    user: String,
}

/// PyBench's tasks, where its files are; else why the test skips.
fn upstream() -> Option<Vec<UpstreamTask>> {
    let path = pybench_testing::benchmark::pybench_data()?.join("meta/task.json");
    Some(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

#[test]
fn no_ability_is_without_a_template() {
    let library = Library::embedded().unwrap();
    assert!(library.templates().len() >= 100);
    assert_eq!(library.abilities().len(), 63);
    assert!(library.abilities().iter().all(|a| !a.templates.is_empty()));
}

#[test]
fn the_abilities_are_those_of_pybench() {
    let Some(tasks) = upstream() else { return };
    let theirs: BTreeSet<_> = tasks
        .into_iter()
        .map(|task| [task.category1, task.category2, task.category3])
        .collect();
    let library = Library::embedded().unwrap();
    let ours: BTreeSet<_> = library
        .abilities()
        .iter()
        .map(|ability| ability.categories.clone())
        .collect();
    assert_eq!(ours, theirs);
}

/// Words of Latin letters and digits, and every Chinese character by itself, in lower case.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    for c in text.to_lowercase().chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || "_./".contains(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if ('\u{4e00}'..='\u{9fff}').contains(&c) {
            words.push(c.to_string());
        }
    }
    words
}

fn grams(text: &str) -> BTreeSet<Vec<String>> {
    words(text).windows(GRAM).map(<[_]>::to_vec).collect()
}

#[test]
fn words_of_both_languages_are_told_apart() {
    assert_eq!(
        words("Save ./a.csv, 画图A b!"),
        ["save", "./a.csv", "画", "图", "a", "b"]
    );
    assert_eq!(grams("a b c d e f g h i").len(), 2);
}

/// Homologous, not contaminated: no eight words in a row are PyBench's.
#[test]
fn no_text_of_pybench_is_copied() {
    let Some(tasks) = upstream() else { return };
    let mut theirs = BTreeMap::new();
    for task in &tasks {
        for gram in grams(&task.user) {
            theirs.insert(gram, task.index.as_str());
        }
    }
    assert!(theirs.len() > 1000, "{}", theirs.len());
    let library = Library::embedded().unwrap();
    let mut copied = Vec::new();
    for template in library.templates() {
        let queries = template.query.all().map(|wording| &wording.text);
        let said = template.turns.iter().flat_map(|turn| turn.thought.all());
        for text in queries.chain(said) {
            for gram in grams(text.get_ref()) {
                if let Some(index) = theirs.get(&gram) {
                    copied.push(format!("{}: task {index}: {gram:?}", template.name()));
                }
            }
        }
    }
    assert!(copied.is_empty(), "{copied:#?}");
}

fn program(args: &[&str]) -> Output {
    let mut command = crate::support::pybench("library");
    command.args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams.map(|s| String::from_utf8_lossy(s)).concat()
}

#[test]
fn coverage_is_printed() {
    let output = program(&["coverage"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(
        text.contains("63 abilities, each with a template"),
        "{text}"
    );
    assert!(text.contains("draw-heart"), "{text}");
}

#[test]
fn a_template_is_begun_shown_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let new = ["--library", at, "new", "my-own", "--category", "math"];
    let output = program(&new);
    assert!(output.status.success(), "{}", said(&output));
    let path = folder.path().join("templates/math/my-own.toml");
    assert!(said(&output).contains("my-own.toml"));
    assert!(said(&output).contains("audit --template my-own"));
    let text = std::fs::read_to_string(&path).unwrap();
    let shown = program(&["--library", at, "show", "my-own"]);
    assert!(shown.status.success(), "{}", said(&shown));
    for part in ["# Query", "# Turn 1", "# Answer", "# Checks", "Range: "] {
        assert!(said(&shown).contains(part), "{part}: {}", said(&shown));
    }
    let again = program(&new);
    assert!(!again.status.success());
    assert!(said(&again).contains("there is a template `my-own` already"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let coverage = program(&["--library", at, "coverage"]);
    assert!(said(&coverage).contains("has no abilities.toml"));
}
