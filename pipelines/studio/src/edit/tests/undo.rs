//! Turns that are undone, tried again, or found again when the page is loaded.

use super::*;
use crate::edit::session::MAX_COPIES;

#[tokio::test]
async fn another_try_and_undo_run_no_cell_again() {
    let bench = Bench::new(LONG);
    let cells = || bench.cells.load(Ordering::SeqCst);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    run_turn(&fork, 0, "x").await;
    run_turn(&fork, 1, "y").await;
    until_copied(&fork, 2).await;
    // One was replayed.
    assert_eq!(cells(), 3);

    // The last turn is undone, and the next one is another.
    fork.back(1).unwrap();
    assert_eq!(fork.view().written.len(), 1);
    run_turn(&fork, 1, "z").await;
    assert_eq!(
        (printed(&fork, 0), printed(&fork, 1)),
        ("x 2\n".to_owned(), "z 3\n".to_owned())
    );
    assert_eq!(cells(), 4);
    // Everything is undone.
    fork.back(0).unwrap();
    run_turn(&fork, 0, "better").await;
    assert_eq!(printed(&fork, 0), "better 2\n");
    assert_eq!(cells(), 5);
    // Also after a verdict.
    fork.send(1, vec![answer("3")]).unwrap();
    until(&fork, Phase::Checked).await;
    fork.back(1).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(1, vec![answer("2")]).unwrap();
    until(&fork, Phase::Checked).await;
    assert!(fork.view().verdict.unwrap().accepted);
    assert_eq!(cells(), 5);
    let ahead = fork.back(3).unwrap_err();
    assert_eq!(ahead.exit_code(), ExitCode::Conflict);

    bench.forks.close(&fork.id);
    closed(&bench).await;
}

#[tokio::test]
async fn the_copies_of_an_edit_are_bounded() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    for after in 0..5 {
        run_turn(&fork, after, "x").await;
    }
    until_copied(&fork, 5).await;
    assert_eq!(fork.view().copied, [0, 4, 5]);
    assert_eq!(bench.open.load(Ordering::SeqCst), MAX_COPIES + 1);
    // The turns that have no copy of their own run again from the first one.
    let before = bench.cells.load(Ordering::SeqCst);
    fork.back(3).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(bench.cells.load(Ordering::SeqCst), before + 3);
    assert_eq!(printed(&fork, 2), "x 4\n");
}

#[tokio::test]
async fn where_a_session_cannot_be_copied_the_cells_run_again() {
    let bench = Bench::new(LONG);
    let plan = bench.plan_in(2, "", false);
    let fork = bench.begin(plan, Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I go on.", "x")]).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.back(0).unwrap();
    until(&fork, Phase::Waiting).await;
    fork.send(0, vec![cell("I go on.", "y")]).unwrap();
    until(&fork, Phase::Waiting).await;
    assert_eq!(printed(&fork, 0), "y 2\n");
    assert!(fork.view().copied.is_empty());
    assert_eq!(bench.cells.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn turns_that_are_not_saved_are_there_when_the_page_is_loaded_again() {
    let bench = Bench::new(LONG);
    let again = || {
        let fork = bench.begin_or_resume(bench.plan(2, ""), Vec::new(), true);
        fork.unwrap().unwrap()
    };
    let fork = again();
    run_turn(&fork, 0, "x").await;
    run_turn(&fork, 1, "y").await;
    bench.forks.close(&fork.id);
    let fork = again();
    until(&fork, Phase::Waiting).await;
    assert_eq!(
        (fork.view().written.len(), printed(&fork, 1)),
        (2, "y 3\n".to_owned())
    );
    fork.back(1).unwrap();
    bench.forks.close(&fork.id);
    // Another turn is another edit.
    let other = bench.begin_or_resume(bench.plan(1, ""), Vec::new(), true);
    assert_eq!(other.unwrap().unwrap().view().written, []);
    let fork = again();
    assert_eq!(fork.view().written.len(), 1);
    until(&fork, Phase::Waiting).await;
    fork.send(1, vec![answer("2")]).unwrap();
    until(&fork, Phase::Checked).await;
    // What is saved is in the run.
    bench.save(&fork, true, false).unwrap();
    bench.forks.close(&fork.id);
    assert_eq!(again().view().written, []);
}
