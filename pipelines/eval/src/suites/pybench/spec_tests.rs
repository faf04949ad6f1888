use std::collections::BTreeSet;

use super::*;

const TASK: &str = r#"index = 2
category = 'chart'
status = 'headline'
outputs = ['output/2.csv']
reference = 'expected = [1]'

[inputs]
"data/a.csv" = "6d6d829f63a6a7c8abf184a9eb48dfa82feb8fe185b97639397bd5535024c0cd"

[[check]]
check = 'table'
path = 'output/2.csv'
expected = 'expected'

[[mutant]]
name = 'half'
find = 'x = 1'
replace = 'x = 0.5'

[solution]
answer = 'It is {{ out }}.'

[[solution.turn]]
cell = '''
x = 1
print(x)
'''
read = { out = '(?s)^(.*)$' }
"#;

fn problem(from: &str, to: &str) -> String {
    assert!(TASK.contains(from), "{from}");
    let problems = parse("002.toml", &TASK.replacen(from, to, 1)).unwrap_err();
    problems
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect()
}

#[test]
fn inputs_are_made_for_tasks_that_lack_them() {
    let published = embedded().unwrap();
    let made = regenerated().unwrap();
    assert_eq!(made.len(), 15);
    for (index, spec) in &made {
        // Whether a picture shows a Mel spectrum is for a person or a vision model to say.
        match spec.status {
            TaskStatus::Judge(_) => assert_eq!(*index, 145),
            _ => assert_eq!(spec.status, TaskStatus::Headline, "task {index}"),
        }
        assert!(
            !spec.checks.is_empty() && spec.solution.is_some(),
            "task {index}"
        );
        assert!(
            spec.make.is_some() && spec.inputs.is_empty(),
            "task {index}"
        );
        let lacking = &published[index];
        assert!(
            matches!(lacking.status, TaskStatus::Missing(_)),
            "task {index}"
        );
        // A published file can be made again too: task 23 needs two files that agree.
        let set = |paths: &[String]| paths.iter().cloned().collect::<BTreeSet<_>>();
        assert!(
            set(&spec.missing).is_superset(&set(&lacking.missing)),
            "task {index}"
        );
    }
}

#[test]
fn most_headline_tasks_have_variants() {
    let specs = embedded().unwrap();
    let headline = |spec: &&TaskSpec| spec.status == TaskStatus::Headline && spec.has_variants();
    let varied = specs.values().filter(headline).count();
    assert!(varied >= 60, "{varied}");
}

/// What a person or a vision model decides is left to them; what is decidable has checks, and solutions that the audit proves
/// them with.
#[test]
fn judged_tasks_have_checks_of_what_is_decidable() {
    let specs = embedded().unwrap();
    let judged = |spec: &&TaskSpec| matches!(spec.status, TaskStatus::Judge(_));
    let judged: Vec<&TaskSpec> = specs.values().filter(judged).collect();
    let indexes: Vec<u32> = judged.iter().map(|spec| spec.index).collect();
    assert_eq!(indexes, [49, 116, 132]);
    for spec in judged {
        let proven = !spec.checks.is_empty() && spec.solution.is_some();
        assert!(proven, "task {}", spec.index);
        assert!(
            spec.mutants.len() >= 5 && !spec.rights.is_empty(),
            "task {}",
            spec.index
        );
    }
}

#[test]
fn the_embedded_task_files_are_valid() {
    let specs = embedded().unwrap();
    assert_eq!(specs.len(), 143);
    let headline = specs
        .values()
        .filter(|spec| spec.status == TaskStatus::Headline);
    let headline: Vec<_> = headline.collect();
    assert!(headline.len() >= 115, "{}", headline.len());
    for spec in &headline {
        assert!(
            !spec.mutants.is_empty(),
            "task {} has no incorrect solution",
            spec.index
        );
    }
    for index in [2, 3, 4, 8, 9, 10, 79, 111] {
        let trivial = &specs[&index];
        assert!(
            trivial.perturb.is_some(),
            "task {index} can be solved without work on the published inputs, so it needs `perturb`"
        );
    }
    for index in [128, 129] {
        assert!(
            matches!(specs[&index].status, TaskStatus::Live(_)),
            "{index}"
        );
    }
}

#[test]
fn a_task_file_is_parsed() {
    let spec = parse("002.toml", TASK).unwrap();
    assert_eq!((spec.index, spec.category), (2, Category::Chart));
    let solution = spec.solution.unwrap();
    let changed = spec.mutants[0].apply(&solution).unwrap();
    assert_eq!(changed.turns[0].cell, "x = 0.5\nprint(x)\n");
    assert_eq!(changed.answer, solution.answer);
}

#[test]
fn problems_are_reported_with_file_and_line() {
    for (from, to, expected) in [
        (
            "index = 2",
            "index = 3",
            "002.toml:1: `index` does not match the file name",
        ),
        ("status =", "statu =", "002.toml:3: unknown field `statu`"),
        (
            "'headline'",
            "'live'",
            "002.toml:3: a task outside the headline needs a `reason`",
        ),
        ("'headline'", "'headlin'", "unknown status `headlin`"),
        (
            "output/2.csv'",
            "output/../2.csv'",
            "002.toml:4: an output must be a file under output/",
        ),
        (
            "data/a.csv",
            "data/../a.csv",
            "is not a file directly under data/",
        ),
        (
            "expected = 'expected'",
            "expect = 'expected'",
            "unknown field `expect`",
        ),
        (
            "find = 'x = 1'",
            "find = 'y = 1'",
            "`y = 1` occurs 0 times in the cell",
        ),
        ("(.*)$'", ".*$'", "a regular expression with one group"),
        ("'expected = [1]'", "''", "needs a `reference`"),
        ("6d6d829f", "6d6d829", "is not a BLAKE3 digest"),
    ] {
        let found = problem(from, to);
        assert!(found.contains(expected), "{from} -> {to}: {found}");
        assert!(found.starts_with("002.toml"), "{found}");
    }
}

#[test]
fn a_shared_line_is_reported() {
    let line = "value = sum(number ** 2 for number in range(10))";
    let text = TASK
        .replace("'expected = [1]'", &format!("'''\n{line}\n'''"))
        .replace("print(x)", line);
    let problems = parse("002.toml", &text).unwrap_err();
    assert!(
        problems[0].message.contains("share the line"),
        "{problems:?}"
    );
}

#[test]
fn fuzz_task_files() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let _ = parse("002.toml", &String::from_utf8_lossy(bytes));
    });
}
