//! Tasks on two and three files.

use super::*;

/// A step on the table of four orders and the file `./data/towns.csv`.
fn combined(operation: &str, arguments: &[(&str, argument::Argument)]) -> Frame {
    use argument::Argument::File;
    let columns = vec![
        Column::new("order".into(), vec![1_i64, 2, 3, 4]),
        Column::new("region".into(), vec!["west", "east", "west", "north"]),
    ];
    let orders = Frame::new(DataFrame::new(4, columns).unwrap());
    let path = "./data/towns.csv";
    let mut step = Step {
        operation: operation.into(),
        arguments: argument::Arguments::new([("file", File(path.into()))]),
    };
    for (name, argument) in arguments {
        step.arguments
            .0
            .insert((*name).to_owned(), argument.clone());
    }
    step.apply(&orders.with_others(vec![other(path, lookup())]))
        .unwrap()
}

#[test]
fn joins_match_rows_by_their_key() {
    use argument::Argument::{Column as Name, New};
    let key = ("region", "order");
    let by_key = [("key", Name(key.0.into()))];
    let numbers = |frame: &Frame, column: &str| -> Vec<Option<i64>> {
        let values = frame
            .data
            .column(column)
            .unwrap()
            .cast(&DataType::Int64)
            .unwrap();
        values.i64().unwrap().iter().collect()
    };
    let inner = combined("join_inner", &by_key);
    assert_eq!(numbers(&inner, key.1), [Some(1), Some(3), Some(4)]);
    assert_eq!(numbers(&inner, "tax"), [Some(19), Some(19), Some(11)]);
    assert!(inner.others.is_empty(), "the file is used");
    let left = combined("join_left", &by_key);
    assert_eq!(numbers(&left, "tax"), [Some(19), None, Some(19), Some(11)]);
    let semi = combined("join_semi", &by_key);
    assert_eq!(numbers(&semi, key.1), [Some(1), Some(3), Some(4)]);
    assert_eq!(semi.data.width(), 2, "no columns are added");
    let anti = combined("join_anti", &by_key);
    assert_eq!(numbers(&anti, key.1), [Some(2)]);
    let [key] = by_key;
    let count = combined("lookup_count", &[key.clone(), ("new", New("n".into()))]);
    assert_eq!(numbers(&count, "n"), [Some(1), Some(0), Some(1), Some(1)]);
    let sum = [
        key,
        ("column", Name("tax".into())),
        ("new", New("n".into())),
    ];
    let sum = combined("lookup_sum", &sum);
    assert_eq!(numbers(&sum, "n"), [Some(19), Some(0), Some(19), Some(11)]);
}

/// Tasks on several files among the first so many seeds.
fn on_several_files(seeds: std::ops::Range<u64>) -> Vec<Made> {
    let made = seeds.filter_map(|seed| task(seed, seed % 2 == 0));
    made.filter(|made| made.task.files.len() > 1).collect()
}

#[test]
fn a_task_on_several_files_names_and_needs_each_of_them() {
    let made = on_several_files(0..160);
    assert!(made.len() >= 8, "only {} tasks", made.len());
    let (source, _) = file(&table(120));
    for Made { task, files } in &made {
        let cells = script::Script::new(task, 0, None)
            .unwrap()
            .cells()
            .join("\n");
        for file in &task.files {
            let path = format!("./data/{}", file.name);
            assert!(task.query.contains(&path), "{path}: {}", task.query);
            assert!(cells.contains(&path), "{path}: {cells}");
            let derives = file.id == source.id || file.derived_from.as_ref() == Some(&source.id);
            assert!(derives, "{file:?}");
        }
        assert!(files.len() >= task.files.len() - 1);
    }
    let names = made
        .iter()
        .flat_map(|made| made.task.files.iter().map(|file| file.kind.name()));
    assert!(
        names.collect::<BTreeSet<_>>().len() >= 3,
        "files of several types"
    );
}

#[test]
fn another_kind_of_join_is_a_mistake() {
    let of_joins = |made: &Made| {
        let crawled = file(&table(120)).1;
        let of = |file: &pybench_types::task::TaskFile| {
            let is_it = |bytes: &&Vec<u8>| pybench_types::id::Digest::of_bytes(bytes) == file.id;
            made.files.iter().find(is_it).unwrap_or(&crawled).clone()
        };
        let bytes: Vec<Vec<u8>> = made.task.files.iter().map(of).collect();
        let mistakes = prove::mistakes(&made.task, &bytes).unwrap();
        mistakes
            .into_iter()
            .map(|mistake| mistake.what)
            .collect::<Vec<_>>()
    };
    let wanted = [
        "join_inner: join_left",
        "join_left: join_inner",
        "join_semi: join_anti",
    ];
    let mut seen = BTreeSet::new();
    let made = (0..10).flat_map(|part| on_several_files(part * 80..(part + 1) * 80));
    for made in made {
        seen.extend(of_joins(&made));
        if wanted.iter().all(|what| seen.contains(*what)) {
            return;
        }
    }
    panic!("one of {wanted:?} is missing in {seen:?}");
}
