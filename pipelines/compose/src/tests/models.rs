//! Tasks that end with a fitted model.

use pybench_types::check::CheckSpec;

use super::related::{noise, number};
use super::*;
use crate::operation::Role;

/// Numbers that depend on each other, and categories.
fn rents() -> Frame {
    let rows = 90;
    let region = (0..rows).map(|i| ["north", "south", "east"][i * 7 % 3]);
    let columns = vec![
        number("area", rows, |i| 20.5 + i as f64),
        number("age", rows, |i| 1.25 + noise(i, 97) / 4.0),
        number("rent", rows, |i| {
            300.5 + 8.0 * i as f64 - 3.0 * noise(i, 97) + 5.0 * noise(i, 13)
        }),
        Column::new("region".into(), region.collect::<Vec<_>>()),
    ];
    Frame::new(DataFrame::new(rows, columns).unwrap())
}

/// A task that ends with a model, if this seed gives one.
fn model(seed: u64) -> Option<Made> {
    let (file, bytes) = file(&rents());
    let others = operations::all().filter(|operation| {
        matches!(operation.role, Role::Answer | Role::Output) && !operation.is_model()
    });
    let avoided = HeldOutRule {
        names: others.map(|operation| operation.name.clone()).collect(),
        ..HeldOutRule::default()
    };
    let seed = TaskSeed {
        foreign_names: None,
        seed,
        language: [Language::En, Language::Zh][seed as usize % 2],
        medium: Medium::Table,
        messy: false,
        renamed: false,
        avoided: &avoided,
    };
    make(&file, &bytes, seed, str::to_owned).unwrap()
}

#[test]
fn a_saved_model_is_checked_by_what_it_predicts_and_one_in_json_by_its_coefficients() {
    let mut formats = BTreeSet::new();
    for Made { task, files } in (0..240).filter_map(model) {
        let [path] = task.outputs.as_slice() else {
            panic!("{:?}", task.outputs);
        };
        assert!(task.query.contains(&format!("./{path}")), "{}", task.query);
        let cells = script::Script::new(&task, 0, None).unwrap();
        let cells = cells.cells().join("\n");
        assert!(
            cells.contains(path.as_str()) && !cells.contains('$'),
            "{cells}"
        );
        match task.checks.as_slice() {
            [CheckSpec::Json { .. }] => {
                assert!(path.ends_with(".json") && task.held_out.is_empty());
                assert!(
                    task.reference.contains("coefficients"),
                    "{}",
                    task.reference
                );
                assert!(cells.contains("json.dump"), "{cells}");
            }
            [
                CheckSpec::Model {
                    held_out, any_use, ..
                },
            ] => {
                let [rows] = task.held_out.as_slice() else {
                    panic!("{:?}", task.held_out);
                };
                assert_eq!(&rows.name, held_out);
                let is_theirs =
                    |bytes: &Vec<u8>| pybench_types::id::Digest::of_bytes(bytes) == rows.id;
                assert!(files.iter().any(is_theirs), "the rows are in no file");
                assert_eq!(task.reference, "least = 0.999999999\n");
                assert_eq!(*any_use, path.ends_with(".joblib"));
                assert!(cells.contains("sklearn"), "{cells}");
            }
            other => panic!("{other:?}"),
        }
        formats.insert(path.rsplit('.').next().unwrap_or_default().to_owned());
        if formats.len() == 3 {
            return;
        }
    }
    panic!("only {formats:?}");
}
