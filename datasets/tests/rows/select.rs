//! Selection by a recipe, and copies of datasets without some rows.

use pybench_datasets::dataset;
use pybench_datasets::decontaminate::FileSearch;
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::row_hashes::{self, DatasetDigest};
use pybench_datasets::select::{Cap, GroupBy, PassRate, SelectRecipe, Selector};
use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Attempts, Row, read};
use pybench_testing::rows as common;
use pybench_types::task::{Category, Language};

/// Forty tasks with three attempts each, of which 0 to 3 were successful.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for task in 0..40usize {
        for sample in 0..3u32 {
            let mut row = common::row(task);
            row.sample = sample;
            row.turns = 1 + (task as u32 + 2 * sample) % 5;
            row.attempts = Attempts {
                tried: 3,
                solved: (task % 4) as u32,
            };
            rows.push(row);
        }
    }
    rows
}

fn choose(recipe: SelectRecipe, rows: &[Row]) -> Vec<Row> {
    let mut selector = Selector::new(recipe).unwrap();
    rows.iter().for_each(|row| selector.add(row));
    let (taken, report) = selector.finish();
    let chosen: Vec<Row> = rows
        .iter()
        .zip(&taken)
        .filter(|(_, t)| **t)
        .map(|(r, _)| r.clone())
        .collect();
    let out: usize = report.left_out.values().sum();
    assert_eq!((report.seen, report.taken + out), (rows.len(), rows.len()));
    assert_eq!(report.taken, chosen.len());
    chosen
}

#[test]
fn tasks_are_selected_by_pass_rate() {
    let rows = rows();
    let sometimes = SelectRecipe {
        pass_rate: PassRate {
            above: Some(0.0),
            below: Some(1.0),
            tried: 2,
        },
        ..SelectRecipe::default()
    };
    let chosen = choose(sometimes.clone(), &rows);
    assert_eq!(chosen.len(), 60);
    assert!(
        chosen
            .iter()
            .all(|row| [1, 2].contains(&row.attempts.solved))
    );
    // Too few attempts.
    let mut seldom = sometimes;
    seldom.pass_rate.tried = 4;
    assert_eq!(choose(seldom, &rows).len(), 0);
    assert_eq!(choose(SelectRecipe::default(), &rows).len(), rows.len());
}

#[test]
fn the_best_of_each_task_have_the_fewest_turns_then_tokens() {
    let rows = rows();
    let recipe = SelectRecipe {
        best_of_task: 1,
        ..SelectRecipe::default()
    };
    let chosen = choose(recipe.clone(), &rows);
    assert_eq!(chosen.len(), 40);
    for row in &chosen {
        let others = rows.iter().filter(|other| other.task_id == row.task_id);
        assert_eq!(Some(row.turns), others.map(|other| other.turns).min());
    }
    assert_eq!(
        choose(recipe, &rows),
        chosen,
        "the selection is deterministic"
    );
}

#[test]
fn sources_are_capped_and_the_rest_is_balanced() {
    let rows = rows();
    let capped = SelectRecipe {
        at_most: vec![
            Cap {
                of: GroupBy::Template,
                rows: 4,
            },
            Cap {
                of: GroupBy::Origin,
                rows: 30,
            },
        ],
        ..SelectRecipe::default()
    };
    let chosen = choose(capped, &rows);
    let of_template = |name: &str| chosen.iter().filter(|row| row.template == name).count();
    assert!(chosen.iter().all(|row| of_template(&row.template) <= 4));
    assert!(chosen.iter().filter(|row| !row.files.is_empty()).count() <= 30);
    let even = SelectRecipe {
        rows: 30,
        seed: 3,
        ..SelectRecipe::default()
    };
    // All equally good.
    let mut rows = rows;
    let tokens = rows[0].tokens;
    for row in &mut rows {
        (row.turns, row.tokens) = (1, tokens);
    }
    let chosen = choose(even.clone(), &rows);
    assert_eq!(chosen.len(), 30);
    for category in [Category::Chart, Category::Math, Category::ImageAudio] {
        let count = chosen.iter().filter(|row| row.category == category).count();
        assert_eq!(count, 10, "{category:?}");
    }
    let other = SelectRecipe { seed: 4, ..even };
    assert!(
        choose(other, &rows) != chosen,
        "another seed selects other rows among equals"
    );
}

#[test]
fn licenses_categories_languages_and_turns_are_respected() {
    let rows = rows();
    let recipe = SelectRecipe {
        license_allow: vec!["bsd-3-clause".into()],
        languages: vec![Language::En],
        categories: vec![Category::Math, Category::ImageAudio],
        least_turns: 2,
        most_turns: 4,
        ..SelectRecipe::default()
    };
    let chosen = choose(recipe, &rows);
    assert!(!chosen.is_empty());
    for row in &chosen {
        let licensed =
            |file: &pybench_datasets::RowFile| file.license.as_deref() == Some("BSD-3-Clause");
        assert!(row.files.iter().all(licensed));
        assert!(row.language == Language::En && row.category != Category::Chart);
        assert!((2..=4).contains(&row.turns));
    }
    assert!(
        rows.iter()
            .any(|row| row.files.iter().any(|file| file.license.is_none()))
    );
}

#[test]
fn invalid_recipes_are_rejected() {
    let wrong = [
        SelectRecipe {
            least_turns: 5,
            most_turns: 4,
            ..SelectRecipe::default()
        },
        SelectRecipe {
            pass_rate: PassRate {
                above: Some(1.5),
                ..PassRate::default()
            },
            ..SelectRecipe::default()
        },
        SelectRecipe {
            at_most: vec![Cap {
                of: GroupBy::Task,
                rows: 0,
            }],
            ..SelectRecipe::default()
        },
    ];
    for recipe in wrong {
        assert!(Selector::new(recipe).is_err());
    }
}

#[test]
fn a_dataset_can_be_copied_without_some_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let split = SplitSettings {
        test_fraction: 0.2,
        held_out_templates: 2,
        seed: 7,
        shares: None,
    };
    let settings = ShardSettings {
        shard_rows: 20,
        ..ShardSettings::default()
    };
    dataset::write(&from, common::rows(90), &split, &settings, &common::about()).unwrap();
    let before: Vec<(String, Row)> = read::dataset(&from).unwrap().map(Result::unwrap).collect();
    let keep = |number: usize, _: &Row| number.is_multiple_of(2);
    let written = rewrite(
        &from,
        &to,
        keep,
        &settings,
        &common::about(),
        &FileSearch::default(),
    )
    .unwrap();
    let after: Vec<(String, Row)> = read::dataset(&to).unwrap().map(Result::unwrap).collect();
    let expected: Vec<(String, Row)> = before.into_iter().step_by(2).collect();
    assert_eq!(after, expected);
    assert_eq!(written.train.rows + written.test.rows, after.len());
    let mut digest = DatasetDigest::default();
    for (split, row) in &after {
        assert!(row_hashes::problems(row).is_empty());
        digest.add(split, &row_hashes::row_digest(row));
    }
    assert_eq!(digest.digest(), written.digest);
    // If all rows are kept, the shards are identical.
    let whole = folder.path().join("whole");
    rewrite(
        &from,
        &whole,
        |_, _| true,
        &settings,
        &common::about(),
        &FileSearch::default(),
    )
    .unwrap();
    for shard in read::shards(&from).unwrap() {
        let other = whole.join("data").join(shard.path.file_name().unwrap());
        assert_eq!(
            std::fs::read(&shard.path).unwrap(),
            std::fs::read(other).unwrap()
        );
    }
}

#[test]
fn a_copy_is_scrubbed_and_keeps_the_names_of_its_splits() {
    const SECRET: &str = "ghp_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2";
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let data = from.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let settings = ShardSettings::default();
    let mut rows = common::rows(30);
    rows[2].messages[1].content += &format!(" {SECRET}");
    for (split, rows) in ["train", "test", "validation"]
        .into_iter()
        .zip(rows.chunks(10))
    {
        shards::write(&data, split, rows, &settings).unwrap();
    }
    let written = rewrite(
        &from,
        &to,
        |_, _| true,
        &settings,
        &common::about(),
        &FileSearch::default(),
    )
    .unwrap();
    assert_eq!((written.scrub.rows, written.scrub.found.total()), (1, 1));
    let copied: Vec<(String, Row)> = read::dataset(&to).unwrap().map(Result::unwrap).collect();
    let mut digest = DatasetDigest::default();
    for ((split, row), number) in copied.iter().zip(0..) {
        assert_eq!(split, ["train", "test", "validation"][number / 10]);
        assert!(!format!("{row:?}").contains(SECRET));
        assert_eq!(row.scrubbed, u32::from(number == 2));
        digest.add(split, &row_hashes::row_digest(row));
    }
    assert_eq!(digest.digest(), written.digest);
    let card = std::fs::read_to_string(to.join("README.md")).unwrap();
    for expected in [
        "1 findings in 1 rows were replaced",
        "- split: validation\n    path: data/validation-*.parquet",
        "| | train | test | validation |\n| --- | ---: | ---: | ---: |\n| rows | 10 | 10 | 10 |",
        "- name: validation\n    num_bytes: ",
    ] {
        assert!(card.contains(expected), "{expected} is missing in\n{card}");
    }
}
