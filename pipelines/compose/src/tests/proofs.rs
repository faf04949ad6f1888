//! What is proven of a graph and what it shows.

use super::*;

#[test]
fn a_proven_graph_has_no_step_that_could_be_left_out() {
    let start = table(160);
    let mut made = 0;
    for seed in 0..40 {
        let Some(composed) = compose(&start, &HeldOutRule::default(), &mut rng(seed)) else {
            continue;
        };
        made += 1;
        let whole = composed.graph.evaluate(&start).unwrap();
        for at in 0..composed.graph.0.len() - 1 {
            let mut steps = composed.graph.0.clone();
            steps.remove(at);
            let without = Graph(steps).evaluate(&start);
            let equal = without.is_ok_and(|result| same(&result.data, &whole.data, whole.ordered));
            assert!(!equal, "step {at} of {}", composed.graph.skeleton());
        }
    }
    assert!(made >= 8, "only {made} graphs of 40 draws");
}

#[test]
fn a_step_without_effect_is_found() {
    let start = table(60);
    let step = |operation: &str, column: &str| Step {
        operation: operation.into(),
        arguments: argument::Arguments::new([(
            "column",
            argument::Argument::Column(column.into()),
        )]),
    };
    // The order of the rows does not change a mean.
    let graph = Graph(vec![
        step("sort_ascending", "name"),
        step("answer_mean", "price"),
    ]);
    let found = survivor(&graph, &start, &mut rng(1)).unwrap();
    assert!(found.what.starts_with("sort_ascending"), "{}", found.what);
}

#[test]
fn a_changed_chain_whose_answer_ties_with_the_expected_one_is_found() {
    let columns = vec![Column::new("key".into(), ["a", "b", "a", "b", "b"])];
    let start = Frame::new(DataFrame::new(5, columns).unwrap());
    let step = |operation: &str, name: &str, argument: argument::Argument| Step {
        operation: operation.into(),
        arguments: argument::Arguments::new([(name, argument)]),
    };
    let graph = Graph(vec![
        step("filter_head", "count", argument::Argument::Count(3)),
        step(
            "answer_most_frequent",
            "key",
            argument::Argument::Column("key".into()),
        ),
    ]);
    // Among four rows, a and b tie, and solutions take the first one.
    let found = survivor(&graph, &start, &mut rng(1)).unwrap();
    assert_eq!(found.what, "filter_head: another count");
}

#[test]
fn a_chart_shows_neither_names_of_columns_nor_the_order_of_its_points() {
    let names = ["a", "b", "c"];
    let columns = vec![
        Column::new("name".into(), names),
        Column::new("label".into(), names),
        Column::new("one".into(), [1.0, 2.0, 4.0]),
        Column::new("two".into(), [5.0, 3.0, 8.0]),
    ];
    let start = Frame::new(DataFrame::new(3, columns).unwrap());
    let column = |name: &str| argument::Argument::Column(name.into());
    let step = |operation: &str, arguments: &[(&str, &str)]| Step {
        operation: operation.into(),
        arguments: argument::Arguments(
            arguments
                .iter()
                .map(|(name, of)| ((*name).to_owned(), column(of)))
                .collect(),
        ),
    };
    let found = |steps: Vec<Step>| {
        let found = survivor(&Graph(steps), &start, &mut rng(1));
        found.map(|found| found.what)
    };
    let bars = step("bar_chart", &[("label", "name"), ("column", "one")]);
    assert_eq!(found(vec![bars]).unwrap(), "bar_chart: another label");
    let sort = || step("sort_ascending", &[("column", "two")]);
    let points = step("scatter_plot", &[("across", "one"), ("up", "two")]);
    assert_eq!(
        found(vec![sort(), points]).unwrap(),
        "sort_ascending: without it"
    );
    let line = step("line_chart", &[("column", "two")]);
    assert_eq!(found(vec![sort(), line]), None);
}

#[test]
fn a_table_with_an_infinite_number_has_no_task() {
    let found = |start: &Frame| {
        let everything = HeldOutRule::default();
        (0..30).any(|seed| crate::compose::compose(start, &everything, &mut rng(seed)).is_some())
    };
    let mut start = table(60);
    assert!(found(&start));
    let limits = (0..60).map(|at| {
        if at == 7 {
            f64::INFINITY
        } else {
            f64::from(at)
        }
    });
    let limits = Column::new("limit".into(), limits.collect::<Vec<f64>>());
    start.data.with_column(limits).unwrap();
    assert!(!found(&start));
}
