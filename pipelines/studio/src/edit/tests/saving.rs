//! What is saved of an edit, where, and when.

use pybench_types::human_edit::HUMAN_EDITED;
use pybench_types::trajectory::Role;
use serde_json::{Value, json};

use super::*;
use crate::saved_edits;

#[tokio::test]
async fn an_edited_turn_runs_in_the_restored_state_and_is_saved_when_the_checks_accept_it() {
    let bench = Bench::new(LONG);
    let fork = bench.begin(bench.plan(2, ""), Vec::new()).unwrap().unwrap();
    until(&fork, Phase::Waiting).await;
    let view = fork.view();
    let cells: Vec<&[String]> = view.recorded.iter().map(|turn| &*turn.cells).collect();
    assert_eq!(cells, [&["b".to_owned()][..], &[]]);
    assert_eq!((view.turns.len(), view.recorded[1].text.as_str()), (0, "3"));
    assert!(text_of(bench.save(&fork, true, true).unwrap_err()).contains("no verdict yet"));

    fork.send(0, vec![cell("I count again.", "better")])
        .unwrap();
    until(&fork, Phase::Waiting).await;
    let shown = serde_json::to_value(fork.view().turns).unwrap();
    // One cell ran before it.
    assert_eq!(shown[0]["cells"][0]["outputs"][0]["text"], "better 2\n");
    let stale = fork.send(0, vec![answer("2")]).unwrap_err();
    assert_eq!(stale.exit_code(), ExitCode::Conflict);
    fork.send(1, vec![as_recorded(3)]).unwrap();
    until(&fork, Phase::Checked).await;
    assert!(!fork.view().verdict.unwrap().accepted);
    let refused = text_of(bench.save(&fork, true, true).unwrap_err());
    assert!(refused.contains("do not accept"), "{refused}");

    // The same turns with another answer.
    let turns = [&fork.view().written[..1], &[answer("2")]].concat();
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, false, false).unwrap_err()).contains("`pair`"));
    bench.save(&fork, true, false).unwrap();
    bench.save(&fork, false, true).unwrap();
    let info = fork.view().saved.unwrap();
    assert!(info.repair && info.pair, "{info:?}");
    // Another page saves the same turns.
    let turns = fork.view().written;
    let again = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&again, Phase::Checked).await;
    bench.save(&again, true, false).unwrap();
    let info = again.view().saved.unwrap();
    assert!(info.repair && info.pair, "{info:?}");
    let run = bench.folder.path().join("runs/r");
    assert_eq!(
        saved_edits::edits_of(&run, recorded().id.as_str()).unwrap(),
        std::slice::from_ref(&info)
    );
    assert_eq!(saved_edits::edits_of(&run, "x").unwrap(), []);
    let edit = saved_edits::edit(&run, recorded().id.as_str(), &info.id)
        .unwrap()
        .unwrap();
    let trajectory = edit.trajectory;
    assert!(
        trajectory.teacher.starts_with(HUMAN_EDITED),
        "{}",
        trajectory.teacher
    );
    assert_eq!(
        (trajectory.seed, &*trajectory.environment),
        (recorded().seed, "e")
    );
    let replies = trajectory
        .messages
        .iter()
        .filter(|m| m.role == Role::Assistant);
    let trained: Vec<bool> = replies.map(|reply| reply.trained).collect();
    assert_eq!(trained, [false, true, true]);
    let corrects = trajectory.corrects.unwrap();
    assert_eq!((&*corrects.student, corrects.turns), ("m", 1));

    let pairs = saved_edits::preferences(&run).unwrap();
    let pair: Value = serde_json::from_str(pairs.trim()).unwrap();
    let message = |text: String| json!([{"role": "assistant", "content": text}]);
    assert_eq!(
        pair["chosen"],
        message(FORMAT.write_step("I count again.", "better"))
    );
    assert_eq!(
        pair["rejected"],
        message(FORMAT.write_step("I count.", "b"))
    );
    let prompt = pair["prompt"].as_array().unwrap();
    assert!(
        prompt.last().unwrap()["content"]
            .as_str()
            .unwrap()
            .contains("a 1")
    );
}

#[tokio::test]
async fn an_edit_is_saved_in_the_run_of_its_row_or_not_at_all() {
    let bench = Bench::new(LONG);
    let run = bench.folder.path().join("runs/r");
    for saved_in in [SavePlace::Nowhere, SavePlace::Run(run.clone())] {
        let plan = Plan {
            saved_in: saved_in.clone(),
            ..bench.plan(3, "")
        };
        let fork = bench.begin(plan, vec![answer("2")]).unwrap().unwrap();
        until(&fork, Phase::Checked).await;
        let view = fork.view();
        assert!(view.verdict.unwrap().accepted);
        let saved = bench.save(&fork, true, false);
        let edits = saved_edits::edits_of(&run, recorded().id.as_str()).unwrap();
        if saved_in == SavePlace::Nowhere {
            assert!(text_of(saved.unwrap_err()).contains(&view.unsaved));
            assert!(view.unsaved.contains("evaluation") && edits.is_empty());
        } else {
            saved.unwrap();
            assert_eq!((&*view.unsaved, view.saved_in.as_deref()), ("", Some("r")));
            assert_eq!(edits.len(), 1);
        }
    }
}

#[tokio::test]
async fn a_pair_needs_a_rejected_side_and_another_reply() {
    let bench = Bench::new(LONG);
    let accepted = Plan {
        is_rejected: false,
        ..bench.plan(3, "")
    };
    let fork = bench.begin(accepted, vec![answer("2")]).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, false, true).unwrap_err()).contains("worse side"));
    let turns = vec![as_recorded(2), answer("2")];
    let fork = bench.begin(bench.plan(2, ""), turns).unwrap().unwrap();
    until(&fork, Phase::Checked).await;
    assert!(text_of(bench.save(&fork, true, true).unwrap_err()).contains("two replies"));
    bench.save(&fork, true, false).unwrap();
}
