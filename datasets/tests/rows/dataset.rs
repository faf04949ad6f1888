//! Writing whole datasets: deterministic bytes, atomic replacement, shards and card.

use pybench_testing::rows as common;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use pybench_datasets::card::{self, CardInfo};
use pybench_datasets::dataset::{self, WrittenDataset};
use pybench_datasets::decontaminate::{
    BenchmarkMatches, BenchmarkSearch, FileSearch, MatchAction, RowPrint,
};
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::split::{Assignment, SplitSettings};
use pybench_datasets::{DatasetError, Row, RowFile};
use pybench_types::id::Digest;

const SPLIT: SplitSettings = SplitSettings {
    test_fraction: 0.2,
    held_out_templates: 2,
    seed: 7,
    shares: None,
};

fn small() -> ShardSettings {
    ShardSettings {
        shard_rows: 40,
        row_group_rows: 10,
        ..ShardSettings::default()
    }
}

fn write(folder: &Path, rows: Vec<Row>) -> WrittenDataset {
    dataset::write(folder, rows, &SPLIT, &small(), &common::about()).unwrap()
}

/// Relative path → bytes of everything in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let inner = contents(&path).into_iter();
            found.extend(inner.map(|(rest, bytes)| (format!("{name}/{rest}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn the_card_says_that_no_row_matches_a_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let card = || fs::read_to_string(path.join("README.md")).unwrap();
    write(&path, common::rows(60));
    assert!(card().contains("The rows were not compared with benchmarks."));
    let info = CardInfo {
        benchmarks: compared(&common::rows(60)),
        ..common::about()
    };
    assert_eq!(info.benchmarks.matches, []);
    assert_eq!(info.benchmarks.warning(), None);
    dataset::write(&path, common::rows(60), &SPLIT, &small(), &info).unwrap();
    let card = card();
    assert!(
        card.contains("60 rows were compared with PyBench, WikiTableQuestions,"),
        "{card}"
    );
    assert!(card.contains("No row matches."), "{card}");
}

/// What rows have in common with the known benchmarks.
fn compared(rows: &[Row]) -> BenchmarkMatches {
    let (mut search, files) = (BenchmarkSearch::default(), FileSearch::default());
    for row in rows {
        search.add(RowPrint::of(row, &files));
    }
    search.finish(&files)
}

#[test]
fn the_card_says_what_happened_to_rows_that_copy_a_benchmark() {
    let Some(queries) = pybench_testing::benchmark::pybench_queries() else {
        return;
    };
    let (mut rows, copied) = (common::rows(120), [3, 50, 100]);
    for (row, query) in copied
        .iter()
        .zip([&queries[0], &queries[60], &queries[142]])
    {
        rows[*row].query = format!("Hello! {query}");
    }
    let mut benchmarks = compared(&rows);
    let found: Vec<usize> = benchmarks.matches.iter().map(|found| found.row).collect();
    assert_eq!(found, copied, "{benchmarks:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut card = |action| {
        benchmarks.action = action;
        let info = CardInfo {
            benchmarks: benchmarks.clone(),
            ..common::about()
        };
        dataset::write(&path, rows.clone(), &SPLIT, &small(), &info).unwrap();
        fs::read_to_string(path.join("README.md")).unwrap()
    };
    let dropped = card(MatchAction::Dropped);
    let expected = "3 of them match tasks or files of a benchmark (PyBench 3) and were left out.";
    assert!(dropped.contains(expected), "{dropped}");
    let allowed = card(MatchAction::Allowed);
    for expected in [
        "**Warning:** 3 of 120 rows match tasks or files of benchmarks (PyBench 3)",
        "They were kept on purpose (`--allow-contaminated`).",
        &format!("| `{}` | pybench/", rows[50].trajectory_id.short()),
    ] {
        assert!(allowed.contains(expected), "{allowed}");
    }
    // A copy of the dataset warns, too.
    let (copy, keep) = (folder.path().join("b"), |_: usize, _: &Row| true);
    let files = FileSearch::default();
    let again = rewrite(&path, &copy, keep, &small(), &common::about(), &files).unwrap();
    let card = fs::read_to_string(copy.join("README.md")).unwrap();
    assert!(again.benchmarks.matches.len() <= 3 && !again.benchmarks.matches.is_empty());
    assert!(
        card.contains("`pybench dataset decontaminate` removes them."),
        "{card}"
    );
}

#[test]
fn a_section_of_a_card_is_replaced() {
    let text = "---\n---\n# T\n\n## Benchmarks\n\nold\n\n## Proof\n\nso\n";
    let with = card::with_section(text, "## Benchmarks\n\nnew\n");
    assert_eq!(with, text.replace("old", "new"));
    let with = card::with_section(text, "## Other\n\nnew\n");
    assert_eq!(with, format!("{text}\n## Other\n\nnew\n"));
    let last = "# T\n\n## Benchmarks\n\nold\n";
    let with = card::with_section(last, "## Benchmarks\n\nnew\n");
    assert_eq!(with, last.replace("old", "new"));
}

#[test]
fn equal_rows_give_identical_files() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let written = write(&a, common::rows(120));
    assert_eq!(written, write(&b, common::rows(120)));
    let files = contents(&a);
    assert_eq!(files, contents(&b));
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "README.md",
            "data/test-00000-of-00001.parquet",
            "data/train-00000-of-00003.parquet",
            "data/train-00001-of-00003.parquet",
            "data/train-00002-of-00003.parquet",
        ]
    );
    let other = write(&b, common::rows(119));
    assert_ne!(written, other);
    assert_ne!(files, contents(&b), "other rows must give other bytes");
}

#[test]
fn an_existing_dataset_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dataset");
    // A temporary folder left by a killed process.
    fs::create_dir(folder.path().join(".pybench-dataset-dead")).unwrap();
    write(&path, common::rows(120));
    fs::write(path.join("data/stale.parquet"), b"stale").unwrap();
    write(&path, common::rows(30));
    let names: Vec<String> = contents(folder.path()).into_keys().collect();
    assert_eq!(
        names,
        [
            "dataset/README.md",
            "dataset/data/test-00000-of-00001.parquet",
            "dataset/data/train-00000-of-00001.parquet",
        ]
    );
}

/// Several commands write to one parent folder, which also has what a killed one left.
#[test]
fn datasets_are_written_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(".pybench-dataset-left");
    fs::create_dir(&left).unwrap();
    let write_often = |name: String| {
        let path = folder.path().join(name);
        for _ in 0..5 {
            assert_eq!(write(&path, common::rows(40)).split.assignments.len(), 40);
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || write_often(format!("d{writer}")));
        }
    });
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    names.sort_by_key(fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(fs::DirEntry::file_name).collect();
    assert_eq!(names, ["d0", "d1", "d2", "d3"]);
}

#[test]
fn a_failed_write_leaves_the_old_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dataset");
    write(&path, common::rows(30));
    let before = contents(folder.path());
    let bad = ShardSettings {
        zstd_level: 99,
        ..small()
    };
    let error = dataset::write(&path, common::rows(50), &SPLIT, &bad, &common::about());
    assert!(matches!(error, Err(DatasetError::Setting(_))), "{error:?}");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn shards_are_compressed_grouped_and_indexed() {
    let folder = tempfile::tempdir().unwrap();
    let paths = shards::write(folder.path(), "train", &common::rows(35), &small()).unwrap();
    assert_eq!(paths.len(), 1);
    let file = File::open(&paths[0]).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let metadata = reader.metadata();
    assert_eq!(metadata.file_metadata().num_rows(), 35);
    assert_eq!(
        metadata.file_metadata().created_by(),
        Some("pybench-datasets (parquet-rs)")
    );
    assert_eq!(metadata.num_row_groups(), 4);
    for column in metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns())
    {
        assert!(
            matches!(column.compression(), Compression::ZSTD(_)),
            "{column:?}"
        );
        assert!(column.column_index_offset().is_some());
        assert!(column.offset_index_offset().is_some());
    }
}

#[test]
fn the_size_of_a_row_group_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ShardSettings {
        row_group_rows: 20,
        row_group_bytes: 20_000,
        ..small()
    };
    let mut rows = common::rows(40);
    for (number, row) in rows.iter_mut().enumerate() {
        // Text that does not compress well.
        let noise = (0..400).map(|i| pybench_types::id::Digest::of_json(&(number, i)).to_string());
        row.messages[0].content = noise.collect();
    }
    let paths = shards::write(folder.path(), "train", &rows, &settings).unwrap();
    let reader = SerializedFileReader::new(File::open(&paths[0]).unwrap()).unwrap();
    assert!(reader.metadata().num_row_groups() > 2);
}

#[test]
fn held_out_templates_are_only_in_the_test_split() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(&folder.path().join("d"), common::rows(120));
    assert_eq!(written.split.held_out.len(), 2);
    assert!(written.split.count(Assignment::Test) > 0);
    for template in &written.split.held_out {
        assert!(!written.train.templates.contains_key(template));
        assert!(written.test.templates.contains_key(template));
    }
}

#[test]
fn rows_with_held_out_parts_are_only_in_the_test_split() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let mut rows = common::rows(120);
    for row in rows.iter_mut().step_by(9) {
        row.operations = ["sort", "rank"].map(str::to_owned).into();
        row.pairs = vec!["sort>rank".into()];
        row.renamed = true;
        row.unseen = "pairs".into();
    }
    let written = write(&path, rows);
    let read = pybench_datasets::read::dataset(&path).unwrap();
    for row in read {
        let (split, row) = row.unwrap();
        assert_eq!(row.renamed, !row.pairs.is_empty());
        match split.as_str() {
            "train" => assert!(
                row.unseen.is_empty() && row.pairs.is_empty(),
                "{}",
                row.query
            ),
            _ => assert_eq!(
                row.unseen == "pairs",
                row.pairs == ["sort>rank"],
                "{}",
                row.unseen
            ),
        }
    }
    assert!(
        written.test.unseen["pairs"] > 0,
        "{:?}",
        written.test.unseen
    );
    assert!(written.train.unseen.is_empty());
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    assert!(
        card.contains("| pairs | ") && card.contains("| templates | 120 |"),
        "{card}"
    );
}

/// Rows of one file and rows of a part of another file, with that file's digest or an older mark in the origin.
#[test]
fn a_file_and_its_parts_are_in_one_split() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(120);
    rows.retain(|row| !row.files.is_empty());
    let whole = rows[0].files[0].clone();
    let part = |origin: &str, derived_from| RowFile {
        blake3: Digest::of_bytes(b"a part"),
        origin: origin.to_owned(),
        derived_from,
        ..whole.clone()
    };
    let marked = part(&format!("{}#split", whole.origin), None);
    let derived = part("elsewhere", Some(whole.blake3.clone()));
    for (number, part) in [marked, derived].into_iter().enumerate() {
        let is_whole = |row: &Row| row.files[0].blake3 == whole.blake3;
        let (same, mut others): (Vec<Row>, Vec<Row>) = rows.clone().into_iter().partition(is_whole);
        // Enough rows of the part that it would be a component of its own.
        others
            .iter_mut()
            .take(3)
            .for_each(|row| row.files = vec![part.clone()]);
        let count = same.len() + 3;
        let written = write(&folder.path().join("d"), [others, same].concat());
        assert_eq!(written.split.largest_component, count, "{number}");
    }
}

#[test]
fn the_card_describes_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    write(&path, common::rows(60));
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    for expected in [
        "expert (scripted, not a language model)",
        "path: data/train-*.parquet",
        "path: data/test-*.parquet",
        "- bsd-3-clause",
        "- other",
        "- zh",
        "n<1K",
        "counted by the tokenizer cl100k_base",
        "4 of 4 rejected",
        "./justw synthesize",
        "````toml",
    ] {
        assert!(card.contains(expected), "{expected} is missing in\n{card}");
    }
}

#[test]
fn a_dataset_without_rows_has_one_empty_shard() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(&folder.path().join("d"), vec![]);
    assert_eq!((written.train.rows, written.test.rows), (0, 0));
    let names: Vec<String> = contents(folder.path()).into_keys().collect();
    assert_eq!(
        names,
        ["d/README.md", "d/data/train-00000-of-00001.parquet"]
    );
}

/// Writing all rows at once, streaming them, and writing each shard separately give the same bytes.
#[test]
fn shards_do_not_depend_on_how_they_are_written() {
    use pybench_datasets::shards::ShardWriter;
    let settings = ShardSettings {
        shard_rows: 8,
        row_group_rows: 4,
        ..ShardSettings::default()
    };
    let rows = common::rows(45);
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let at_once = shards::write(&place("at-once"), "train", &rows, &settings).unwrap();
    let mut writer = ShardWriter::new(&place("streamed"), "train", rows.len(), &settings).unwrap();
    for row in rows.clone() {
        writer.add(row).unwrap();
    }
    let streamed = writer.finish().unwrap();
    assert_eq!((at_once.len(), streamed.len()), (6, 6));
    for (number, (one, other)) in at_once.iter().zip(&streamed).enumerate() {
        assert_eq!(one.file_name(), other.file_name());
        let bytes = std::fs::read(one).unwrap();
        assert!(bytes == std::fs::read(other).unwrap(), "shard {number}");
        let alone = place(&format!("alone-{number}"));
        let own = &rows[number * 8..(number * 8 + 8).min(45)];
        let alone = shards::write(&alone, "train", own, &settings).unwrap();
        assert!(
            bytes == std::fs::read(&alone[0]).unwrap(),
            "shard {number} alone"
        );
    }
    // An existing shard is never overwritten, no matter which thread finds it.
    let taken = folder.path().join("streamed");
    let error = shards::write(&taken, "train", &rows, &settings).unwrap_err();
    assert!(error.to_string().contains("train-0000"), "{error}");
    let mut writer = ShardWriter::new(&taken, "train", rows.len(), &settings).unwrap();
    let mut failed = rows.into_iter().try_for_each(|row| writer.add(row));
    failed = failed.and_then(|()| writer.finish().map(|_| ()));
    assert!(
        failed
            .unwrap_err()
            .to_string()
            .contains("train-00000-of-00006")
    );
}

/// A dataset is streamed, row by row, into the shards that its rows give when they are written at once.
#[test]
fn a_streamed_dataset_has_the_same_shards() {
    let settings = ShardSettings {
        shard_rows: 250,
        ..ShardSettings::default()
    };
    // The long rows end batches before the hundredth row.
    let rows: Vec<Row> = (0..600)
        .map(|number| match number % 90 {
            80 => common::long_row(number, 700_000),
            _ => common::row(number),
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let at_once = folder.path().join("at-once");
    fs::create_dir(&at_once).unwrap();
    shards::write(&at_once, "train", &rows, &settings).unwrap();
    let all = SplitSettings {
        test_fraction: 0.0,
        ..SPLIT
    };
    let path = folder.path().join("dataset");
    let written = dataset::write_with(
        &path,
        rows,
        (&all, &settings),
        &common::about(),
        &Scrubber::default(),
        None,
    );
    assert_eq!(written.unwrap().train.rows, 600);
    assert!(contents(&at_once) == contents(&path.join("data")));
}
