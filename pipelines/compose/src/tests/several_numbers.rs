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
    let printed = format!("join(f\"{{number:.{decimals}f}}\" for number in answer)");
    assert!(work.contains(&printed), "{work}");
    let seen = vec!["answer: 1.50, 22.00"; cells.len()];
    let Action::Answer(answer) = script.next(&seen).unwrap() else {
        panic!("no answer after all cells");
    };
    let line = format!("{marker}: 1.50, 22.00");
    assert_eq!(answer.lines().last(), Some(line.as_str()));
}
