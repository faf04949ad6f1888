//! Edits that end, are left, or are too many.

use super::*;
use crate::edit::forks::MAX_FORKS;
use crate::edit::plan::MAX_TURNS;

#[tokio::test]
async fn cells_that_do_not_repeat_end_the_edit_with_the_reason() {
    let bench = Bench::new(LONG);
    let fork = bench
        .begin(bench.plan(2, "!"), Vec::new())
        .unwrap()
        .unwrap();
    until(&fork, Phase::Failed).await;
    let problem = fork.view().problem;
    assert!(problem.contains("do not repeat"), "{problem}");
    // Nothing is replayed before the first turn.
    let fork = bench
        .begin(bench.plan(1, "!"), Vec::new())
        .unwrap()
        .unwrap();
    until(&fork, Phase::Waiting).await;
}

#[tokio::test]
async fn an_edit_that_was_left_frees_its_session() {
    let bench = Bench::new(LONG);
    // Even while a cell runs.
    let turns = vec![cell("I wait.", "sleep")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Running).await;
    assert_eq!(bench.open.load(Ordering::SeqCst), 1);
    bench.forks.close(&fork.id);
    assert!(bench.forks.get(&fork.id).is_none());
    closed(&bench).await;

    let bench = Bench::new(Duration::from_secs(2));
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    // It lives while somebody asks for it.
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(bench.forks.get(&fork.id).is_some());
    }
    closed(&bench).await;
    assert!(bench.forks.get(&fork.id).is_none());
}

#[tokio::test]
async fn edits_and_their_turns_are_bounded() {
    let bench = Bench::new(LONG);
    let mut open = Vec::new();
    for _ in 0..MAX_FORKS {
        open.push(bench.begin(bench.plan(1, ""), Vec::new()).unwrap().unwrap());
    }
    assert!(
        bench
            .begin(bench.plan(1, ""), Vec::new())
            .unwrap()
            .is_none()
    );
    bench.forks.close(&open[0].id);
    assert!(
        bench
            .begin(bench.plan(1, ""), Vec::new())
            .unwrap()
            .is_some()
    );
    until(&open[1], Phase::Waiting).await;
    let many = vec![cell("Look.", "a"); MAX_TURNS as usize + 1];
    let error = text_of(open[1].send(0, many).unwrap_err());
    assert!(error.contains("at most 64 turns"), "{error}");
    let error = text_of(open[1].send(0, vec![as_recorded(4)]).unwrap_err());
    assert!(error.contains("turns 1 to 3"), "{error}");
    assert_eq!(open[1].view().written, []);
}
