//! Tasks on crawled files that share a key.

use pybench_types::id::Digest;

use super::*;
use crate::operation::Role;
use crate::plan::Plan;

/// A crawled file with a row for three of the four regions of the table and for others, and a column of texts.
fn towns(key: &str, texts: &str) -> (SourceFile, Vec<u8>) {
    let name = |at: usize| match at {
        0..3 => ["south", "west", "north"][at].to_owned(),
        _ => format!("town {at}"),
    };
    let columns = vec![
        Column::new(key.into(), (0..30).map(name).collect::<Vec<_>>()),
        Column::new(
            "tax".into(),
            (0..30_i64).map(|at| at * at % 31 + 3).collect::<Vec<_>>(),
        ),
        Column::new(
            texts.into(),
            (0..30)
                .map(|at| ["a", "b", "c"][at % 3])
                .collect::<Vec<_>>(),
        ),
    ];
    let (source, bytes) = file(&Frame::new(DataFrame::new(30, columns).unwrap()));
    let source = SourceFile {
        name: "towns.csv".into(),
        origin: "towns.csv".into(),
        ..source
    };
    (source, bytes)
}

/// Some tasks on the table and this file.
fn joined(other: &(SourceFile, Vec<u8>), renamed: bool) -> Vec<Made> {
    let (source, bytes) = file(&table(120));
    let keys = [
        TableKeys::read(&source, &bytes),
        TableKeys::read(&other.0, &other.1),
    ];
    let found = partners(&keys, |_, _| true);
    let [partner] = found[0].as_slice() else {
        panic!("{found:?}");
    };
    let others = [Joined {
        file: &other.0,
        bytes: &other.1,
        key: &partner.key,
        other_key: &partner.other_key,
    }];
    let make = |seed: u64| {
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: Language::En,
            medium: Medium::Table,
            messy: false,
            renamed,
            avoided: &HeldOutRule::default(),
        };
        make_joined(&source, &bytes, &others, seed, str::to_owned).unwrap()
    };
    (0..80).filter_map(make).take(4).collect()
}

#[test]
fn a_task_joins_two_crawled_files_and_states_both() {
    let source = file(&table(120)).0;
    for (key, renamed) in [("region", false), ("region", true), ("Place", true)] {
        let other = towns(key, "zone");
        let made = joined(&other, renamed);
        assert_eq!(made.len(), 4, "tasks by {key}");
        for Made { task, files } in made {
            let of = |file: &pybench_types::task::TaskFile| -> Digest {
                file.derived_from.clone().unwrap_or(file.id.clone())
            };
            let [first, second] = task.files.as_slice() else {
                panic!("{:?}", task.files);
            };
            assert_eq!(
                (of(first), of(second)),
                (source.id.clone(), other.0.id.clone())
            );
            assert_eq!(second.origin, "towns.csv");
            assert_eq!(files.len() >= 2, renamed, "new files have invented names");
            for file in &task.files {
                let path = format!("./data/{}", file.name);
                assert!(task.query.contains(&path), "{path}: {}", task.query);
            }
            let graph = Plan::of(&task).unwrap().graph;
            let combines = |step: &Step| step.operation().unwrap().role == Role::Combine;
            assert!(graph.0.iter().any(combines), "{}", graph.skeleton());
        }
    }
}

#[test]
fn keys_with_different_names_need_invented_ones() {
    assert!(joined(&towns("Place", "zone"), false).is_empty());
}

#[test]
fn a_name_of_numbers_in_one_file_and_texts_in_the_other_is_in_no_task() {
    assert!(joined(&towns("region", "price"), false).is_empty());
}
