//! Composes graphs over a table with every kind of column.

use std::collections::BTreeSet;

use polars::prelude::*;
use pybench_types::task::{FileKind, Language, Profile, SourceFile};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::argument::{Notation, fill};
use crate::draw::Draw;
use crate::prove::{same, survivor};

/// Numbers, whole numbers with gaps, categories, names, gaps in a text, truth values and days.
fn table(rows: usize) -> Frame {
    let at = |i: usize| (i * 7919 + 13) % 1009;
    let price = (0..rows).map(|i| 5.0 + at(i) as f64 / 8.0);
    let amount = (0..rows).map(|i| (i % 9 != 4).then_some((at(i + 3) % 90) as i64 - 20));
    let region = (0..rows).map(|i| ["north", "south", "east", "west"][at(i) % 4]);
    let product = (0..rows).map(|i| ["lamp", "desk", "chair"][at(i + 1) % 3]);
    let name = (0..rows).map(|i| format!("item {i:03}"));
    let note = (0..rows)
        .map(|i| (i % 5 != 0).then_some(["new stock", "old stock", "sold out"][at(i) % 3]));
    let open = (0..rows).map(|i| at(i) % 3 == 0);
    let day = (0..rows).map(|i| {
        format!(
            "202{}-{:02}-{:02}",
            at(i) % 4,
            at(i) % 12 + 1,
            at(i) % 28 + 1
        )
    });
    let columns = vec![
        Column::new("price".into(), price.collect::<Vec<_>>()),
        Column::new("amount".into(), amount.collect::<Vec<_>>()),
        Column::new(
            "cost".into(),
            (0..rows).map(|i| at(i + 5) as f64).collect::<Vec<_>>(),
        ),
        Column::new("region".into(), region.collect::<Vec<_>>()),
        Column::new("product".into(), product.collect::<Vec<_>>()),
        Column::new("name".into(), name.collect::<Vec<_>>()),
        Column::new("note".into(), note.collect::<Vec<_>>()),
        Column::new("open".into(), open.collect::<Vec<_>>()),
        Column::new("day".into(), day.collect::<Vec<_>>()),
    ];
    Frame::new(DataFrame::new(rows, columns).unwrap())
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The table as a crawled file.
fn file(frame: &Frame) -> (SourceFile, Vec<u8>) {
    let bytes = rename::csv(&frame.data, ',').into_bytes();
    let file = SourceFile {
        id: pybench_types::id::Digest::of_bytes(&bytes),
        name: "stock.csv".into(),
        size: bytes.len() as u64,
        kind: FileKind::Csv,
        origin: "stock.csv".into(),
        license: None,
        fetched: String::new(),
        profile: pybench_profile::profile(FileKind::Csv, &bytes),
    };
    assert!(
        matches!(file.profile, Profile::Table(_)),
        "{:?}",
        file.profile
    );
    (file, bytes)
}

fn task(seed: u64, renamed: bool) -> Option<Made> {
    let (file, bytes) = file(&table(120));
    let seed = TaskSeed {
        seed,
        language: Language::En,
        renamed,
    };
    make(&file, &bytes, seed, |keyword| format!("of {keyword}")).unwrap()
}

/// A name that a wording or code has and the operation does not draw would reach the query as `$name`.
#[test]
fn every_operation_draws_what_its_wordings_and_code_name() {
    // Small and whole, with a duplicate row, and summarized: each operation fits one of them.
    let whole = table(60);
    let doubled = {
        let twice = [whole.lazy().limit(20), whole.lazy().limit(24)];
        Frame::new(
            concat(twice, UnionArgs::default())
                .unwrap()
                .collect()
                .unwrap(),
        )
    };
    let small = Frame::new(whole.lazy().limit(12).collect().unwrap());
    let mut drawn = BTreeSet::new();
    for operation in operations::all() {
        assert!(
            !operation.en.is_empty() && !operation.zh.is_empty(),
            "{operation:?} is not said in both languages"
        );
        assert!(!operation.pandas.is_empty(), "{operation:?} has no code");
        for (seed, frame) in
            (0..60).flat_map(|seed| [&whole, &doubled, &small].map(|frame| (seed, frame)))
        {
            let Some(arguments) = operation.arguments(Draw::new(frame, &mut rng(seed))) else {
                continue;
            };
            let codes = operation
                .pandas
                .iter()
                .chain(&operation.python)
                .chain(&operation.sql);
            let said = operation.en.iter().chain(&operation.zh);
            for pattern in codes.chain(said) {
                let extra = [("t", "df"), ("path", "p"), ("title", "t")];
                let filled = fill(pattern, &arguments, Notation::Python, &extra);
                assert!(!filled.contains('$'), "{operation:?}: {filled}");
            }
            let step = Step {
                operation: operation.name.clone(),
                arguments,
            };
            step.apply(frame)
                .unwrap_or_else(|error| panic!("{operation:?}: {error}"));
            if !drawn.insert(operation.name.as_str()) {
                break;
            }
        }
    }
    let never: Vec<_> = operations::all()
        .filter(|o| !drawn.contains(o.name.as_str()))
        .collect();
    assert!(never.is_empty(), "never drawn: {never:?}");
    assert!(drawn.len() >= 80, "{} operations", drawn.len());
}

#[test]
fn a_proven_graph_has_no_step_that_could_be_left_out() {
    let start = table(160);
    let mut made = 0;
    for seed in 0..40 {
        let Some(composed) = compose(&start, &mut rng(seed)) else {
            continue;
        };
        made += 1;
        let whole = composed.graph.evaluate(&start).unwrap();
        for at in 0..composed.graph.0.len() - 1 {
            let mut steps = composed.graph.0.clone();
            steps.remove(at);
            let without = Graph(steps).evaluate(&start);
            let equal = without.is_ok_and(|result| same(&result.data, &whole.data, whole.ordered));
            assert!(!equal, "step {at} of {}", composed.graph.skeleton());
        }
    }
    assert!(made >= 8, "only {made} graphs of 40 draws");
}

#[test]
fn a_step_without_effect_is_found() {
    let start = table(60);
    let step = |operation: &str, column: &str| Step {
        operation: operation.into(),
        arguments: argument::Arguments::new([(
            "column",
            argument::Argument::Column(column.into()),
        )]),
    };
    // The order of the rows does not change a mean.
    let graph = Graph(vec![
        step("sort_ascending", "name"),
        step("answer_mean", "price"),
    ]);
    let found = survivor(&graph, &start, &mut rng(1)).unwrap();
    assert!(found.what.starts_with("sort_ascending"), "{}", found.what);
}

#[test]
fn the_same_seed_gives_the_same_task_and_another_gives_another() {
    let of = |seed| (seed..seed + 20).find_map(|seed| task(seed, true)).unwrap();
    let (one, again, other) = (of(1), of(1), of(100));
    assert_eq!(one.task, again.task);
    assert_eq!(one.file, again.file);
    assert_ne!(one.task.id, other.task.id);
}

#[test]
fn a_renamed_file_has_none_of_the_names_and_derives_from_the_crawled_one() {
    let made = (0..20).find_map(|seed| task(seed, true)).unwrap();
    let text = String::from_utf8(made.file.unwrap()).unwrap();
    for name in ["price", "region", "north", "lamp"] {
        let cell = |c: char| !c.is_alphanumeric() && c != '_';
        assert!(
            !text.split(cell).any(|word| word == name),
            "`{name}` is in\n{text}"
        );
    }
    let (source, _) = file(&table(120));
    assert_eq!(made.task.files[0].derived_from.as_ref(), Some(&source.id));
    assert_ne!(made.task.files[0].id, source.id);
}

#[test]
fn the_expert_varies_with_the_sample_and_states_what_it_saw() {
    let made = (0..40)
        .filter_map(|seed| task(seed, false))
        .find(|made| made.task.outputs.is_empty())
        .unwrap();
    let cells = |sample| {
        script::Script::new(&made.task, sample, None)
            .unwrap()
            .cells()
            .join("\n")
    };
    let different: BTreeSet<String> = (0..8).map(cells).collect();
    assert!(different.len() > 2, "{different:?}");
    let script = script::Script::new(&made.task, 0, None).unwrap();
    let seen = vec!["answer: 12.3456789"; script.cells().len()];
    let script::Action::Answer(answer) = script.next(&seen).unwrap() else {
        panic!("no answer after all cells");
    };
    assert!(answer.lines().last().unwrap().contains(": "), "{answer}");
    let blind = vec!["nothing"; script.cells().len()];
    assert!(matches!(
        script.next(&blind),
        Err(script::ScriptError::NoAnswer)
    ));
}

proptest::proptest! {
    /// What is written to a csv file is read back.
    #[test]
    fn written_tables_are_read_back(texts in proptest::collection::vec("[ -~é数]{0,12}", 3..20), tab in proptest::bool::ANY) {
        let texts: Vec<String> = texts.iter().map(|text| format!("x{text}x")).collect();
        let numbers: Vec<i64> = (0..texts.len() as i64).collect();
        let columns = vec![Column::new("a b".into(), texts), Column::new("n".into(), numbers)];
        let data = DataFrame::new(columns[0].len(), columns).unwrap();
        let (kind, separator) = if tab { (FileKind::Tsv, '\t') } else { (FileKind::Csv, ',') };
        let bytes = rename::csv(&data, separator).into_bytes();
        let (read, _) = pybench_profile::frame(kind, &bytes).unwrap();
        proptest::prop_assert!(same(&read, &data, true), "{read:?}");
    }
}
