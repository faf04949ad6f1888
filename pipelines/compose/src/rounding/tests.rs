//! Tables with numbers that differ by rounding only, beside tables in which they are apart.

use pybench_types::held_out::HeldOutRule;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::argument::Arguments;
use crate::compose::compose_of;
use crate::draw::Draw;
use crate::operation::Operation;
use crate::operations;

fn step<const N: usize>(operation: &str, arguments: [(&str, Argument); N]) -> Step {
    Step {
        operation: operation.to_owned(),
        arguments: Arguments::new(arguments),
    }
}

fn column(name: &str) -> Argument {
    Argument::Column(name.to_owned())
}

fn new(name: &str) -> Argument {
    Argument::New(name.to_owned())
}

fn frame(columns: Vec<Column>) -> Frame {
    Frame::new(DataFrame::new(columns[0].len(), columns).unwrap())
}

fn is_decided(start: &Frame, steps: Vec<Step>) -> bool {
    let graph = Graph(steps);
    let result = graph.evaluate(start).unwrap();
    decides(&graph, start, &result)
}

/// Numbers whose two largest sums are 0.1 + 0.2 and 0.3 + 0, or further apart.
fn addends(near: bool) -> Frame {
    let first = match near {
        true => [0.2, 0.0],
        false => [0.25, 0.5],
    };
    let b = [first[0], first[1], 0.06, 0.05, 0.03, 0.13];
    frame(vec![
        Column::new("a".into(), vec![0.1, 0.3, 0.05, 0.02, 0.01, 0.04]),
        Column::new("b".into(), b.to_vec()),
        Column::new("c".into(), vec![0.3, 0.3, 0.2, 0.2, 0.2, 0.2]),
        Column::new("name".into(), vec!["p", "q", "r", "s", "t", "u"]),
        Column::new("group".into(), vec!["x", "x", "y", "y", "z", "z"]),
    ])
}

/// What may follow the sums, which are in the column `s`.
fn decisions() -> Vec<Vec<Step>> {
    let s = || ("column", column("s"));
    let key = || ("key", column("group"));
    let name = || ("name", column("name"));
    let at = || ("value", Argument::Number(0.3));
    let text = |text: &str| Argument::Text(text.to_owned());
    vec![
        vec![step("answer_top_three", [name(), s()])],
        vec![step("answer_name_of_largest", [name(), s()])],
        vec![step("filter_largest", [s(), ("count", Argument::Count(1))])],
        vec![step(
            "filter_top_of_each",
            [key(), s(), ("count", Argument::Count(1))],
        )],
        vec![step("sort_descending", [s()])],
        vec![step("sort_two_keys", [key(), s()])],
        vec![step("derive_rank", [s(), ("new", new("rank"))])],
        vec![step("group_rank", [key(), s(), ("new", new("rank"))])],
        vec![step(
            "answer_rank_correlation",
            [s(), ("other", column("b"))],
        )],
        vec![step("filter_at_least", [s(), at()])],
        vec![step("answer_percent_above", [s(), at()])],
        vec![step(
            "derive_label",
            [
                s(),
                at(),
                ("high", text("high")),
                ("low", text("low")),
                ("new", new("level")),
            ],
        )],
        vec![step(
            "filter_compare_columns",
            [s(), ("other", column("c"))],
        )],
        vec![step(
            "derive_bin",
            [s(), ("width", Argument::Number(0.3)), ("new", new("bin"))],
        )],
        // The third quartile of five values is one of them.
        vec![
            step("filter_head", [("count", Argument::Count(5))]),
            step("derive_quartile", [s(), ("new", new("quartile"))]),
        ],
        vec![
            step(
                "select_columns",
                [(
                    "columns",
                    Argument::Columns(vec!["group".into(), "s".into()]),
                )],
            ),
            step("drop_duplicate_rows", []),
        ],
    ]
}

#[test]
fn near_equal_sums_decide_what_orders_compares_or_counts_them() {
    for decision in decisions() {
        let sum = [
            ("column", column("a")),
            ("other", column("b")),
            ("new", new("s")),
        ];
        let mut steps = vec![step("derive_sum", sum)];
        steps.extend(decision);
        for near in [true, false] {
            let found = is_decided(&addends(near), steps.clone());
            assert_eq!(found, near, "{}", Graph(steps.clone()).skeleton());
        }
    }
}

#[test]
fn only_computed_numbers_are_changed() {
    let start = addends(true);
    let has_changed = |steps: Vec<Step>| {
        let graph = Graph(steps);
        let mut trial = Trial {
            change: Change::Up,
            exact: &mut exact_numbers(&graph, &start),
            has_changed: false,
        };
        trial.evaluate(&graph, &start).unwrap();
        trial.has_changed
    };
    let mean = |name: &str| step("answer_mean", [("column", column(name))]);
    let sort = step("sort_descending", [("column", column("a"))]);
    assert!(!has_changed(vec![sort, mean("a")]));
    let sum = [
        ("column", column("a")),
        ("other", column("b")),
        ("new", new("s")),
    ];
    assert!(has_changed(vec![step("derive_sum", sum), mean("s")]));
}

/// Numbers of a file in the column `v`, and their groups in `g`.
fn values(v: &[f64], g: &[&str]) -> Frame {
    frame(vec![
        Column::new("v".into(), v.to_vec()),
        Column::new("g".into(), g.to_vec()),
    ])
}

#[test]
fn what_a_step_computes_and_compares_itself_is_moved_too() {
    let v = || ("column", column("v"));
    let of = |operation: &str| step(operation, [v()]);
    let grouped = |operation: &str| step(operation, [("key", column("g")), v()]);
    let clusters = step(
        "cluster_by_gap",
        [v(), ("gap", Argument::Number(0.1)), ("new", new("cluster"))],
    );
    let tenths = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
    let ones = [0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    // The numbers but the last, the last one of which rounding decides, another one, and the groups.
    let cases: [(Step, &[f64], [f64; 2], &str); 8] = [
        (of("filter_above_mean"), &[0.1, 0.2], [0.3, 0.4], "xxx"),
        (
            grouped("filter_above_group_mean"),
            &[1.0, 5.5, 0.1, 0.2],
            [0.3, 0.4],
            "yyxxx",
        ),
        (
            of("filter_without_outliers"),
            &tenths,
            [1.3, 1.2],
            "xxxxxxxxx",
        ),
        (
            of("filter_within_two_deviations"),
            &ones,
            [1.3, 1.4],
            "xxxxxxxxx",
        ),
        (clusters, &[0.1, 0.9], [0.2, 0.25], "xxx"),
        (
            grouped("answer_top_by_sum"),
            &[0.05, 0.1, 0.2],
            [0.3, 0.5],
            "zxxy",
        ),
        (
            grouped("answer_top_by_mean"),
            &[0.05, 0.1, 0.2, 0.3],
            [0.2, 0.25],
            "zxxxy",
        ),
        (
            grouped("answer_lowest_by_median"),
            &[0.9, 0.1, 0.5],
            [0.3, 0.4],
            "zxxy",
        ),
    ];
    for (step, numbers, last, groups) in cases {
        let groups: Vec<&str> = groups.split("").filter(|group| !group.is_empty()).collect();
        for (number, near) in last.into_iter().zip([true, false]) {
            let start = values(&[numbers, &[number]].concat(), &groups);
            let found = is_decided(&start, vec![step.clone()]);
            assert_eq!(found, near, "{} with {number}", step.operation);
        }
    }
}

#[test]
fn sums_that_cancel_out_are_told_apart_by_nothing() {
    let steps = vec![
        step(
            "derive_z_score",
            [("column", column("v")), ("new", new("z"))],
        ),
        step(
            "group_sum",
            [
                ("key", column("g")),
                ("column", column("z")),
                ("new", new("total")),
            ],
        ),
        step(
            "answer_name_of_largest",
            [("name", column("g")), ("column", column("total"))],
        ),
    ];
    let groups = ["x", "x", "y", "y", "z", "z"];
    let equal = values(&[1.1, 4.9, 2.2, 3.8, 2.5, 3.5], &groups);
    assert!(is_decided(&equal, steps.clone()));
    let different = values(&[1.1, 4.0, 2.2, 3.8, 2.5, 3.9], &groups);
    assert!(!is_decided(&different, steps));
}

#[test]
fn numbers_of_a_file_and_whole_numbers_are_exact() {
    let v = || ("column", column("v"));
    let groups = ["x"; 6];
    let start = values(&[0.1, 0.1, 0.2, 0.3, 0.3, 0.7], &groups);
    let exact = [
        step("filter_at_least", [v(), ("value", Argument::Number(0.3))]),
        step("derive_rank", [v(), ("new", new("rank"))]),
        step("drop_duplicate_rows", []),
    ];
    for step in exact {
        let name = step.operation.clone();
        assert!(!is_decided(&start, vec![step]), "{name}");
    }
    let whole = [
        Column::new("v".into(), vec![1_i64, 2, 3, 2]),
        Column::new("v".into(), vec![1.0, 2.0, 3.0, 2.0]),
    ];
    for numbers in whole {
        let start = frame(vec![numbers]);
        assert!(!is_decided(&start, vec![step("filter_above_mean", [v()])]));
    }
}

#[test]
fn a_zero_among_computed_numbers_is_still_a_zero() {
    let start = values(&[0.1, 0.2, 0.3, 0.4, 0.7], &["x"; 5]);
    let steps = vec![
        step(
            "derive_from_median",
            [("column", column("v")), ("new", new("d"))],
        ),
        step(
            "filter_below",
            [("column", column("d")), ("value", Argument::Number(0.25))],
        ),
    ];
    assert!(!is_decided(&start, steps));
}

#[test]
fn numbers_that_cannot_be_told_apart_are_rounded_to_one() {
    assert_eq!(rounded(0.1 + 0.2), rounded(0.3));
    assert_eq!(rounded(-0.1 - 0.2), rounded(-0.3));
    assert_ne!(rounded(0.3), rounded(0.300_000_01));
    assert_eq!(rounded(3.0), 3.0);
}

#[test]
fn a_percentile_lies_between_two_values() {
    let quantile = operations::named("filter_above_quantile").unwrap();
    let is_drawn = |rows: usize| {
        let numbers: Vec<f64> = (0..rows).map(|row| row as f64 / 10.0).collect();
        let start = frame(vec![Column::new("v".into(), numbers)]);
        (0..20).any(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            quantile.arguments(Draw::new(&start, &mut rng)).is_some()
        })
    };
    assert!(!is_drawn(21), "all percentiles are values");
    assert!(is_drawn(20));
}

/// Differences of few decimals are equal on paper more often than not.
#[test]
fn no_composed_graph_is_decided_by_rounding() {
    let decimals = |factor: usize| {
        let numbers = (0..60).map(|row| ((row * factor) % 37) as f64 / 10.0);
        numbers.collect::<Vec<f64>>()
    };
    let start = frame(vec![
        Column::new("a".into(), decimals(7)),
        Column::new("b".into(), decimals(11)),
        Column::new("c".into(), decimals(5)),
    ]);
    let suits = |operation: &Operation| {
        let some = [
            "derive_difference",
            "derive_rank",
            "answer_rank_correlation",
            "save_csv",
        ];
        some.contains(&operation.name.as_str())
    };
    let mut made = 0;
    for seed in 0..80 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let Some(composed) = compose_of(&start, &HeldOutRule::default(), &suits, &mut rng) else {
            continue;
        };
        made += 1;
        let is_decided = decides(&composed.graph, &start, &composed.result);
        assert!(!is_decided, "{}", composed.graph.skeleton());
    }
    assert!(made >= 3, "only {made} graphs of 80 draws");
}
