use super::*;
use crate::record::tests::{attempt, fingerprint};
use crate::record::{Headline, Judgment, Scores};
use pybench_types::id::Digest;

fn of(attempts: Vec<Attempt>) -> AgentSummary {
    let evaluation = Evaluation::new(fingerprint(&[("m", AgentKind::Model)]), attempts);
    summarize(&evaluation).remove(0)
}

fn judged(mut attempt: Attempt, passed: Option<bool>) -> Attempt {
    attempt.judgment = Some(Judgment {
        judge: "j".into(),
        prompts: Digest::of_bytes(b""),
        passed,
        reason: String::new(),
        duels: [("other".to_owned(), Duel::Win)].into(),
    });
    attempt
}

fn failed(mut attempt: Attempt, outcome: Outcome) -> Attempt {
    attempt.outcome = outcome;
    attempt.scores = Scores::default();
    attempt
}

#[test]
fn micro_and_macro_averages_differ() {
    let mut attempts: Vec<_> = (0..8)
        .map(|i| attempt("m", &i.to_string(), 0, true))
        .collect();
    attempts.push(Attempt {
        category: "math".into(),
        ..attempt("m", "8", 0, false)
    });
    attempts.push(Attempt {
        category: "math".into(),
        ..attempt("m", "9", 0, false)
    });
    let summary = of(attempts);
    let strict = summary.measure(Measure::Strict).unwrap();
    assert_eq!((strict.overall.rate, strict.macro_mean), (0.8, 0.5));
    assert_eq!(
        (
            strict.categories["chart"].rate,
            strict.categories["math"].tasks
        ),
        (1.0, 2)
    );
    assert_eq!(
        summary.measure(Measure::Upstream).unwrap().overall.rate,
        1.0,
        "measures are never combined"
    );
    assert!(
        summary.measure(Measure::Judge).is_none(),
        "no attempt was judged"
    );
}

#[test]
fn infrastructure_failures_change_the_bounds_but_not_the_rate() {
    let good: Vec<_> = (0..4)
        .map(|i| attempt("m", &i.to_string(), 0, i < 2))
        .collect();
    let before = of(good.clone());
    let mut attempts = good;
    let broken = Outcome::Infrastructure {
        failure: "endpoint".into(),
    };
    attempts.push(failed(attempt("m", "4", 0, true), broken));
    attempts.push(failed(
        attempt("m", "5", 0, true),
        Outcome::NotRun {
            reason: "no file".into(),
        },
    ));
    let after = of(attempts);
    let (a, b) = (
        before.measure(Measure::Strict).unwrap(),
        after.measure(Measure::Strict).unwrap(),
    );
    assert_eq!(a.overall, b.overall);
    assert_eq!(
        b.bounds,
        Bounds {
            missing: 1,
            worst: 0.4,
            best: 0.6
        }
    );
    assert_eq!(
        (after.infrastructure, after.not_run, after.ran, after.tasks),
        (1, 1, 4, 6)
    );
}

#[test]
fn the_judge_changes_no_other_rate() {
    let plain: Vec<_> = (0..6)
        .map(|i| attempt("m", &i.to_string(), 0, i % 2 == 0))
        .collect();
    let rates = |s: &AgentSummary| -> Vec<_> {
        let tests = s.measures.iter().filter(|m| m.measure != Measure::Judge);
        tests.map(|m| (m.measure, m.overall, m.bounds)).collect()
    };
    let expected = rates(&of(plain.clone()));
    for said in [Some(true), Some(false), None] {
        let attempts = plain.iter().cloned().map(|a| judged(a, said)).collect();
        assert_eq!(rates(&of(attempts)), expected);
    }
    let mut mixed = plain.clone();
    mixed[0] = judged(mixed[0].clone(), Some(true));
    mixed[1] = judged(mixed[1].clone(), None);
    let summary = of(mixed);
    let judge = summary.measure(Measure::Judge).unwrap();
    assert_eq!((judge.overall.tasks, judge.overall.rate), (1, 1.0));
    assert_eq!((judge.bounds.missing, judge.bounds.best), (5, 1.0));
    assert!(judge.bounds.worst < 0.2);
    assert_eq!(summary.duels["other"].win, 2);
}

#[test]
fn turns_are_averaged_in_both_ways() {
    let summary = of(vec![
        judged(attempt("m", "1", 0, true), Some(true)),
        judged(attempt("m", "2", 0, true), Some(false)),
        attempt("m", "3", 0, true),
    ]);
    assert_eq!(
        summary.turns,
        Some(Turns {
            plain: 3.0,
            as_upstream: Some(6.5)
        })
    );
    assert_eq!(
        of(vec![attempt("m", "1", 0, true)])
            .turns
            .unwrap()
            .as_upstream,
        None
    );
}

#[test]
fn tasks_outside_the_headline_do_not_count_for_strict() {
    let mut left_out = attempt("m", "2", 0, false);
    left_out.headline = Headline {
        counts: false,
        reason: Some("needs a person".into()),
    };
    let summary = of(vec![attempt("m", "1", 0, true), left_out]);
    assert_eq!(summary.measure(Measure::Strict).unwrap().overall.rate, 1.0);
    assert_eq!(summary.measure(Measure::Fixed).unwrap().overall.rate, 0.5);
}

#[test]
fn several_samples_of_a_task_count_as_one_task() {
    let mut attempts: Vec<_> = (0..3)
        .map(|seed| attempt("m", "1", seed, seed == 0))
        .collect();
    attempts.extend((0..3).map(|seed| attempt("m", "2", seed, true)));
    let summary = of(attempts);
    let strict = summary.measure(Measure::Strict).unwrap();
    assert!((strict.overall.rate - 2.0 / 3.0).abs() < 1e-12 && strict.overall.tasks == 2);
    assert_eq!(strict.at_k.len(), 3);
    assert!((strict.at_k[1].any - (2.0 / 3.0 + 1.0) / 2.0).abs() < 1e-12);
    assert_eq!((strict.at_k[2].any, strict.at_k[2].all), (1.0, 0.5));
    assert!(strict.clustered.over_seeds.is_some());
}
