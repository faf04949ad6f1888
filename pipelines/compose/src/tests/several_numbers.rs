//! Tasks that ask for several numbers.

use pybench_types::check::CheckSpec;

use super::task;
use crate::script::{Action, Script};

#[test]
fn several_numbers_are_checked_in_order_and_stated_with_the_decimals_that_are_asked_for() {
    let made = (0..400).filter_map(|seed| task(seed, false));
    let mut several = made.filter_map(|made| match made.task.checks.as_slice() {
        [
            CheckSpec::Values {
                marker,
                ordered: true,
                decimals: Some(decimals),
                ..
            },
        ] => Some((marker.clone(), *decimals, made.task)),
        _ => None,
    });
    let (marker, decimals, task) = several.next().unwrap();
    assert!(
        task.query.contains(&format!("{marker}: N1, N2")),
        "{}",
        task.query
    );
    assert!(
        task.query
            .contains(&format!("at least {decimals} decimals")),
        "{}",
        task.query
    );
    let script = Script::new(&task, 0, None).unwrap();
    let cells = script.cells();
    let work = cells.last().unwrap();
    assert!(work.contains("join(str(number)"), "{work}");
    let seen = vec!["answer: 1.5, 22"; cells.len()];
    let Action::Answer(answer) = script.next(&seen).unwrap() else {
        panic!("no answer after all cells");
    };
    let places = usize::from(decimals);
    let line = format!("{marker}: {:.places$}, {:.places$}", 1.5, 22.0);
    assert_eq!(answer.lines().last(), Some(line.as_str()));
}
