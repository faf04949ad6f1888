//! Lists, pages and searches of indexes that are made of a few rows.

use std::path::Path;

use pybench_run::RunError;
use pybench_show::TrajectorySource;

use super::{Index, ListQuery};
use crate::record::Record;
use crate::review::IdFilter;
use crate::view::{PAGE_TURNS, View};

/// An index of these rows: category, query, reply.
fn index(folder: &Path, rows: &[[&str; 3]]) -> Index {
    let row = |[category, query, reply]: &[&str; 3]| {
        serde_json::json!({"category": category, "messages": [
            {"role": "user", "content": query}, {"role": "assistant", "content": reply}]})
        .to_string()
    };
    let path = folder.join("rows.jsonl");
    let rows: Vec<String> = rows.iter().map(row).collect();
    std::fs::write(&path, rows.join("\n")).unwrap();
    let source = TrajectorySource::open(&path, folder).unwrap();
    Index::open(&folder.join("index.sqlite"), &source).unwrap()
}

const ROWS: [[&str; 3]; 4] = [
    ["chart", "Compute the mean.", "print(1)"],
    ["chart", "Draw a line.", "The mean is 2."],
    ["text", "It's 50 % (\"half\")", "no"],
    ["文本", "求平均值", "完成"],
];

fn numbers(index: &Index, change: impl FnOnce(&mut ListQuery)) -> Vec<u64> {
    let mut query = ListQuery::default();
    change(&mut query);
    let page = index.page(&query).unwrap();
    page.rows.iter().map(|row| row.number).collect()
}

#[test]
fn rows_are_filtered_and_sorted_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &ROWS);
    let of = |change: fn(&mut ListQuery)| numbers(&index, change);
    assert_eq!(of(|_| {}), [1, 2, 3, 4]);
    assert_eq!(of(|query| query.category = "chart".into()), [1, 2]);
    assert_eq!(of(|query| query.min_turns = 2), [0_u64; 0]);
    assert_eq!(of(|query| query.max_turns = Some(1)), [1, 2, 3, 4]);
    assert_eq!(of(|query| query.max_turns = Some(0)), [0_u64; 0]);
    // Tokens and costs of these rows are unknown.
    assert_eq!(of(|query| query.max_tokens = Some(9)), [0_u64; 0]);
    assert_eq!(of(|query| query.max_usd = Some(9.0)), [0_u64; 0]);
    assert_eq!(of(|query| query.max_usd = Some(f64::NAN)), [1, 2, 3, 4]);
    assert_eq!(of(|query| query.min_usd = f64::NAN), [1, 2, 3, 4]);
    let both = |query: &mut ListQuery| {
        let ids = || vec!["x".to_owned()];
        query.ids = vec![IdFilter::Among(ids()), IdFilter::Except(ids())];
    };
    assert_eq!(of(both), [0_u64; 0]);
    let by_query = |query: &mut ListQuery| (query.sort, query.descending) = ("query".into(), true);
    assert_eq!(of(by_query), [4, 3, 2, 1]);
    assert_eq!(of(|query| (query.from, query.count) = (1, 2)), [2, 3]);
    let back = |query: &mut ListQuery| {
        (query.from, query.count, query.descending) = (1, 2, true);
    };
    assert_eq!(of(back), [3, 2]);
    let back_from_the_end = |query: &mut ListQuery| {
        (query.from, query.count, query.descending) = (3, 2, true);
    };
    assert_eq!(of(back_from_the_end), [1]);
    assert_eq!(of(|query| query.from = u64::MAX), [0_u64; 0]);
    let page = index
        .page(&ListQuery {
            count: 1,
            ..ListQuery::default()
        })
        .unwrap();
    assert_eq!((page.total, page.rows.len()), (4, 1));
    let facets = index.facets().unwrap();
    let categories = facets
        .iter()
        .find(|facet| facet.column == "category")
        .unwrap();
    assert_eq!(categories.values[0], ("chart".to_owned(), 2));
}

#[test]
fn each_type_of_input_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let row = |kinds: &[&str]| {
        let files = kinds.iter().map(|kind| serde_json::json!({"kind": kind}));
        serde_json::json!({"files": files.collect::<Vec<_>>(), "messages": [
            {"role": "user", "content": "Count."}]})
        .to_string()
    };
    let path = folder.path().join("rows.jsonl");
    let hostile = "a\"], [\"";
    let rows = [
        row(&["png", "csv"]),
        row(&["csv"]),
        row(&[]),
        row(&["csv"]),
        row(&[hostile]),
    ];
    std::fs::write(&path, rows.join("\n")).unwrap();
    let source = TrajectorySource::open(&path, folder.path()).unwrap();
    let index = Index::open(&folder.path().join("index.sqlite"), &source).unwrap();
    let of = |kind: &str| numbers(&index, |query| query.kinds = kind.into());
    assert_eq!(of("csv"), [1, 2, 4]);
    assert_eq!(of("png"), [1]);
    assert_eq!(of(hostile), [5]);
    assert_eq!(of("csv, png"), [0_u64; 0]);
    let facets = index.facets().unwrap();
    let kinds = facets.iter().find(|facet| facet.column == "kinds").unwrap();
    let expected = [("csv", 3), (hostile, 1), ("png", 1)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(kinds.values, expected);
    assert_eq!(
        index.page(&ListQuery::default()).unwrap().rows[0].kinds,
        ["csv", "png"]
    );
}

#[test]
fn rows_of_a_dataset_have_their_task_and_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let row = |task: &str, tokens: serde_json::Value| {
        serde_json::json!({"task_id": task, "tokens": tokens, "messages": [
            {"role": "user", "content": "Count."}]})
        .to_string()
    };
    let path = folder.path().join("rows.jsonl");
    let known = serde_json::json!({"prompt": 50, "completion": 7, "counted_by": "cl100k"});
    let rows = [
        row("a", known),
        row("b", serde_json::json!([1, 2])),
        row("a", serde_json::json!({"prompt": -1})),
    ];
    std::fs::write(&path, rows.join("\n")).unwrap();
    let source = TrajectorySource::open(&path, folder.path()).unwrap();
    let index = Index::open(&folder.path().join("index.sqlite"), &source).unwrap();
    let of = |change: fn(&mut ListQuery)| numbers(&index, change);
    assert_eq!(of(|query| query.task = "a".into()), [1, 3]);
    assert_eq!(of(|query| query.min_tokens = 57), [1]);
    assert_eq!(of(|query| query.max_tokens = Some(57)), [1]);
    assert_eq!(of(|query| query.min_tokens = 58), [0_u64; 0]);
}

#[test]
fn long_trajectories_are_read_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let message = |role: &str, text: String| serde_json::json!({"role": role, "content": text});
    let mut messages = vec![message("user", "Count.".to_owned())];
    let count = 2 * PAGE_TURNS as u64 + 5;
    for turn in 1..=count {
        messages.push(message("assistant", format!("word{turn}")));
        messages.push(message("user", "Go on.".to_owned()));
    }
    let path = folder.path().join("rows.jsonl");
    let long = serde_json::json!({ "messages": messages });
    let short = serde_json::json!({"messages": messages[..3]});
    std::fs::write(&path, format!("{long}\n{short}\n{long}")).unwrap();
    let source = TrajectorySource::open(&path, folder.path()).unwrap();
    let index = Index::open(&folder.path().join("index.sqlite"), &source).unwrap();
    let page = PAGE_TURNS as u64;
    for number in [1, 3] {
        for (turn, first, last) in [
            (0, 1, page),
            (1, 1, page),
            (page, 1, page),
            (page + 1, page + 1, 2 * page),
            (count, 2 * page + 1, count),
            (u64::MAX, 2 * page + 1, count),
        ] {
            let view = index.view(number, turn).unwrap().unwrap();
            assert_eq!((view.first_turn, view.turn_count), (first, count), "{turn}");
            assert_eq!(view.turns[0].text, format!("word{first}"));
            assert_eq!(view.turns.last().unwrap().text, format!("word{last}"));
            assert_eq!((view.row.number, &*view.query), (number, "Count."));
        }
    }
    let view = index.view(2, 9).unwrap().unwrap();
    assert_eq!(
        (view.first_turn, view.turn_count, view.turns.len()),
        (1, 1, 1)
    );
    assert_eq!(index.view(4, 1).unwrap(), None);
    for (number, before, expected) in [
        (1, 0, (1, page)),
        (1, page + 3, (page + 4, page)),
        (3, 2 * page, (2 * page + 1, 5)),
        (2, 0, (1, 1)),
    ] {
        let turns = index.turns_after(number, before).unwrap().unwrap();
        let (first, length) = expected;
        assert_eq!(turns[0].text, format!("word{first}"));
        assert_eq!(turns.len() as u64, length);
    }
    for (number, before) in [(1, count), (3, u64::MAX), (2, 1), (2, page)] {
        let turns = index.turns_after(number, before).unwrap();
        assert_eq!(turns, Some(Vec::new()), "{number} {before}");
    }
    assert_eq!(index.turns_after(4, 0).unwrap(), None);
    assert_eq!(index.turns_after(4, page).unwrap(), None);
    assert_eq!(
        numbers(&index, |query| query.search = format!("word{count}")),
        [1, 3]
    );
}

#[test]
fn words_are_found_by_role() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &ROWS);
    let of = |search: &str, role: &str| {
        numbers(&index, |query| {
            (query.search, query.role) = (search.into(), role.into())
        })
    };
    assert_eq!(of("MEAN", ""), [1, 2]);
    assert_eq!(of("mean", "user"), [1]);
    assert_eq!(of("mean", "tool"), [0_u64; 0]);
    assert_eq!(of("mean compute", ""), [1]);
    assert_eq!(of("\"the mean\"", ""), [1, 2]);
    assert_eq!(of("\"mean the\"", ""), [0_u64; 0]);
    assert_eq!(of("comp*", ""), [1]);
    assert_eq!(of("comp", ""), [0_u64; 0]);
    assert_eq!(of("50 % (\"half", ""), [3]);
    // With other orders and filters the search is a condition among others.
    let found = |change: fn(&mut ListQuery)| {
        numbers(&index, |query| {
            query.search = "mean".into();
            change(query);
        })
    };
    assert_eq!(found(|query| query.descending = true), [2, 1]);
    assert_eq!(found(|query| (query.from, query.count) = (1, 1)), [2]);
    assert_eq!(found(|query| query.sort = "query".into()), [1, 2]);
    assert_eq!(found(|query| query.category = "text".into()), [0_u64; 0]);
    assert_eq!(of("平均", ""), [4]);
    assert_eq!(of("均平", ""), [0_u64; 0]);
}

#[test]
fn hostile_queries_find_nothing_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &ROWS);
    let hostile = [
        "x' OR 1=1 --",
        "\" OR user : mean",
        "mean) OR (mean",
        "NEAR(mean, x) NOT",
        "user : {x}",
        "-x",
        "^x",
        "x\0mean",
        "\"\"\"x\"\"\"",
        "x**",
        "x AND",
    ];
    for search in hostile {
        for role in ["", "user"] {
            let query = ListQuery {
                search: search.into(),
                role: role.into(),
                ..ListQuery::default()
            };
            let page = index
                .page(&query)
                .unwrap_or_else(|error| panic!("{search:?}: {error}"));
            assert_eq!(page.total, 0, "{search:?}");
        }
        let of = |change: fn(&mut ListQuery, String)| {
            numbers(&index, |query| change(query, search.into()))
        };
        assert_eq!(of(|query, text| query.category = text), [0_u64; 0]);
    }
    for (sort, role, search) in [
        ("number; DROP TABLE row", "", ""),
        ("json", "", ""),
        ("", "nobody", "x"),
        ("", "", "% ("),
        ("", "", &"x ".repeat(2000)),
    ] {
        let query = ListQuery {
            sort: sort.into(),
            role: role.into(),
            search: search.into(),
            ..ListQuery::default()
        };
        let error = index.page(&query).unwrap_err();
        assert!(matches!(error, RunError::BadInput(_)), "{error}");
    }
    assert_eq!(numbers(&index, |_| {}), [1, 2, 3, 4]);
}

#[test]
fn records_are_found_by_number_and_damaged_indexes_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (row, json) = index(folder.path(), &ROWS).record(2).unwrap().unwrap();
    assert_eq!(row.query, "Draw a line.");
    let record: Record = serde_json::from_str(&json).unwrap();
    assert_eq!(View::new(row, record).turns[0].text, "The mean is 2.");
    let path = folder.path().join("index.sqlite");
    std::fs::write(&path, "no database").unwrap();
    let index = index(folder.path(), &ROWS);
    assert_eq!(numbers(&index, |_| {}), [1, 2, 3, 4]);
    for number in [0, 5, u64::MAX] {
        assert_eq!(index.record(number).unwrap(), None);
    }
    assert!(
        !folder
            .path()
            .read_dir()
            .unwrap()
            .flatten()
            .any(|entry| { entry.path().extension().is_some_and(|end| end == "part") })
    );
}

#[test]
fn rows_before_a_malformed_line_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let row = serde_json::json!({"category": "chart", "messages": [
        {"role": "user", "content": "Compute the mean."}]});
    let path = folder.path().join("rows.jsonl");
    std::fs::write(&path, format!("{row}\n{row}\nno")).unwrap();
    let source = TrajectorySource::open(&path, folder.path()).unwrap();
    let index = Index::begin(&folder.path().join("index.sqlite"), &source).unwrap();
    let error = index.wait().unwrap_err().to_string();
    assert!(error.contains("line 3"), "{error}");
    let page = index.page(&ListQuery::default()).unwrap();
    assert_eq!((page.total, page.rows.len()), (2, 2));
    let progress = page.indexing.unwrap();
    assert_eq!((progress.rows, progress.problem), (2, error));
    assert_eq!(
        numbers(&index, |query| query.search = "mean".into()),
        [1, 2]
    );
    let facets = index.facets().unwrap();
    let categories = facets.iter().find(|facet| facet.column == "category");
    assert_eq!(categories.unwrap().values, [("chart".to_owned(), 2)]);
    // The next start makes the index again.
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

#[test]
fn an_index_that_is_left_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let row = serde_json::json!({"messages": [{"role": "user", "content": "Count."}]});
    let path = folder.path().join("rows.jsonl");
    std::fs::write(&path, format!("{row}\n").repeat(60_000)).unwrap();
    let source = TrajectorySource::open(&path, folder.path()).unwrap();
    let index = Index::begin(&folder.path().join("index.sqlite"), &source).unwrap();
    assert!(
        index
            .progress()
            .is_some_and(|progress| progress.rows < 60_000)
    );
    let growth = index.growth.clone();
    drop(index);
    assert!(growth.wait().is_err());
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}
