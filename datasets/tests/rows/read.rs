//! Reading shards: the rows are unchanged, and errors name the column.

use pybench_testing::rows as common;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pybench_datasets::dataset;
use pybench_datasets::row_hashes::{self, DatasetDigest, RowHashes};
use pybench_datasets::shards::{self, ShardSettings};
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Row, card, read};
use pybench_types::trajectory::Role;

fn shard(folder: &Path, rows: &[Row]) -> std::path::PathBuf {
    let settings = ShardSettings {
        row_group_rows: 7,
        ..ShardSettings::default()
    };
    shards::write(folder, "train", rows, &settings)
        .unwrap()
        .remove(0)
}

/// The row without the fields that only the reader sets.
fn plain(row: Row) -> Row {
    Row {
        stored: None,
        ..row
    }
}

#[test]
fn rows_are_read_back_and_match_their_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let rows = common::rows(45);
    let path = shard(folder.path(), &rows);
    let read: Vec<Row> = read::rows(&path)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for row in &read {
        assert_eq!(row_hashes::problems(row), Vec::<String>::new());
        assert_eq!(row.stored.as_ref(), Some(&RowHashes::of(row)));
    }
    let mut files = read.iter().flat_map(|row| row.task().files);
    assert!(
        files.any(|file| file.format.is_some()),
        "a verifier reads the files as they were read"
    );
    let plain = |rows: Vec<Row>| rows.into_iter().map(plain).collect::<Vec<_>>();
    assert_eq!(plain(read), plain(rows));
}

/// Every column counts for the hash of a row, tool definitions and choices too.
#[test]
fn changed_tools_do_not_match_the_hash() {
    let changes: [fn(&mut Row); 2] = [
        |row| row.tools = Some("[{\"type\": \"function\"}]".into()),
        |row| row.tool_choices = "none".into(),
    ];
    for change in changes {
        let mut rows = common::rows(1);
        let before = row_hashes::row_digest(&rows[0]);
        change(&mut rows[0]);
        assert_ne!(row_hashes::row_digest(&rows[0]), before);
        let folder = tempfile::tempdir().unwrap();
        let read = read::rows(&shard(folder.path(), &rows)).unwrap();
        let read: Vec<Row> = read.collect::<Result<_, _>>().unwrap();
        assert_eq!(read[0].tools, rows[0].tools);
        assert_eq!(read[0].tool_choices, rows[0].tool_choices);
    }
}

#[test]
fn all_compressions_and_page_versions_are_read() {
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::{WriterProperties, WriterVersion};

    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(45));
    let rows = |path: &Path| read::rows(path).unwrap().collect::<Result<Vec<_>, _>>();
    let wanted = rows(&path).unwrap();
    let file = File::open(&path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let schema = reader.schema().clone();
    let batches: Vec<_> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
    let zstd = |level| Compression::ZSTD(ZstdLevel::try_new(level).unwrap());
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for compression in [
            zstd(1),
            zstd(19),
            Compression::SNAPPY,
            Compression::UNCOMPRESSED,
        ] {
            for dictionary in [true, false] {
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(compression)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(4)
                    .set_write_batch_size(4)
                    .set_max_row_group_row_count(Some(20))
                    .build();
                let to = folder.path().join("other.parquet");
                let to_file = File::create(&to).unwrap();
                let mut writer =
                    ArrowWriter::try_new(to_file, schema.clone(), Some(properties)).unwrap();
                for batch in &batches {
                    writer.write(batch).unwrap();
                }
                writer.close().unwrap();
                let told = format!("{version:?} {compression:?} {dictionary}");
                assert_eq!(rows(&to).unwrap(), wanted, "{told}");
            }
        }
    }
}

#[test]
fn a_corrupt_page_is_reported_with_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(5));
    let mut bytes = fs::read(&path).unwrap();
    let file = File::open(&path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let group = reader.metadata().row_group(0);
    let mut columns = group.columns().iter();
    let column = columns.find(|column| column.column_path().string() == "query");
    let (start, length) = column.unwrap().byte_range();
    let chunk = &mut bytes[start as usize..(start + length) as usize];
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let frame = chunk.windows(4).position(|four| four == magic).unwrap();
    chunk[frame] ^= 1;
    let to = folder.path().join("hurt.parquet");
    fs::write(&to, &bytes).unwrap();
    let error = read_error(&to);
    assert!(error.contains("hurt.parquet"), "{error}");
    assert!(error.contains("column query: "), "{error}");
}

#[test]
fn rows_are_in_order_and_an_invalid_shard_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let rows = common::rows(100);
    let settings = ShardSettings {
        shard_rows: 40,
        row_group_rows: 3,
        ..ShardSettings::default()
    };
    let paths = shards::write(folder.path(), "train", &rows, &settings).unwrap();
    let ids = |rows: &[Row]| {
        rows.iter()
            .map(|row| row.trajectory_id.clone())
            .collect::<Vec<_>>()
    };
    let read = || read::dataset(folder.path()).unwrap();
    let all: Vec<Row> = read().map(|row| row.unwrap().1).collect();
    assert_eq!(ids(&all), ids(&rows));
    assert_eq!(
        read().nth(50).unwrap().unwrap().1.trajectory_id,
        rows[50].trajectory_id
    );

    // Corrupt a column in the sixth row group of the second shard; then truncate the shard.
    let whole = fs::read(&paths[1]).unwrap();
    let mut hurt = whole.clone();
    let file = File::open(&paths[1]).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let (start, length) = reader.metadata().row_group(5).column(1).byte_range();
    hurt[start as usize..(start + length) as usize].fill(0xff);
    for (bytes, count) in [(hurt.as_slice(), 75), (&whole[..40], 60)] {
        fs::write(&paths[1], bytes).unwrap();
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for row in read() {
            match row {
                Ok((_, row)) => good.push(row),
                Err(error) => bad.push(error.to_string()),
            }
        }
        assert_eq!(bad.len(), 1, "{bad:?}");
        assert!(bad[0].contains("train-00001-of-00003.parquet"), "{bad:?}");
        assert_eq!(good.len(), count);
        let end = good.len() - 20;
        assert_eq!(
            ids(&good[..end]),
            ids(&rows[..end]),
            "rows before the corruption"
        );
        assert_eq!(
            ids(&good[end..]),
            ids(&rows[80..]),
            "rows of the next shard"
        );
    }
}

#[test]
fn the_card_states_the_digest_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
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
    let rows = common::rows(90);
    let written = dataset::write(&path, rows, &split, &settings, &common::about()).unwrap();
    let mut digest = DatasetDigest::default();
    for row in read::dataset(&path).unwrap() {
        let (split, row) = row.unwrap();
        digest.add(&split, &row_hashes::row_digest(&row));
    }
    assert_eq!(digest.digest(), written.digest);
    let text = fs::read_to_string(path.join("README.md")).unwrap();
    assert_eq!(card::digest(&text), Some(written.digest.as_str()));
    let stamped = card::stamped(&text, "All fine.\n").unwrap();
    assert!(stamped.contains("All fine.") && !stamped.contains("Not verified yet"));
    assert_eq!(
        card::stamped(&stamped, "Not verified yet.\n").unwrap(),
        text
    );
}

#[test]
fn a_changed_row_is_detected_and_the_hash_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(3));
    let row = read::rows(&path).unwrap().next().unwrap().unwrap();
    type Change = fn(&mut Row);
    let changes: [(&str, Change); 9] = [
        ("row", |row| row.messages[2].content.push('.')),
        ("query", |row| row.query.push('.')),
        ("prompts", |row| row.messages[0].content.push('.')),
        ("teacher", |row| row.teacher.push('.')),
        ("sampling", |row| row.sampling.top_p += 0.01),
        ("environment", |row| row.environment.push('.')),
        ("outputs", |row| row.outputs[0].size += 1),
        ("checks", |row| row.checks[0].outcome = "fail"),
        ("grading", |row| row.grading.reference.push(' ')),
    ];
    for (name, change) in changes {
        let mut changed = row.clone();
        change(&mut changed);
        let problems = row_hashes::problems(&changed);
        let found = problems.iter().any(|problem| problem.contains(name));
        assert!(found, "{name}: {problems:?}");
    }
    // If the hashes are changed as well, the ids no longer match the contents.
    let mut changed = row.clone();
    changed.query.push('.');
    changed.stored = Some(RowHashes::of(&changed));
    assert!(row_hashes::problems(&changed)[0].contains("task_id"));
}

/// Write the shard's rows to another file, with one column replaced or removed.
fn with_column(path: &Path, to: &Path, name: &str, column: Option<(Field, ArrayRef)>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let schema = reader.schema().clone();
    let batches: Vec<_> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
    let whole = concat_batches(&schema, &batches).unwrap();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, array) in schema.fields().iter().zip(whole.columns()) {
        match (&column, field.name() == name) {
            (_, false) => {
                fields.push(field.as_ref().clone());
                columns.push(array.clone());
            }
            (Some((field, array)), true) => {
                fields.push(field.clone());
                columns.push(array.clone());
            }
            (None, true) => {}
        }
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let file = File::create(to).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn read_error(path: &Path) -> String {
    let rows = read::rows(path);
    let error = match rows {
        Err(error) => error,
        Ok(rows) => rows.collect::<Result<Vec<_>, _>>().unwrap_err(),
    };
    error.to_string()
}

/// The column `messages` of a shard, with another column of weights or without one.
fn messages_with(path: &Path, weights: Option<ArrayRef>) -> (Field, ArrayRef) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let batches: Vec<_> = reader.build().unwrap().collect::<Result<_, _>>().unwrap();
    let whole = concat_batches(&batches[0].schema(), &batches).unwrap();
    let lists = whole.column_by_name("messages").unwrap().as_list::<i32>();
    let structs = lists.values().as_struct();
    let mut columns: Vec<(Arc<Field>, ArrayRef)> = ["role", "content"]
        .map(|name| {
            let field = Field::new(name, DataType::Utf8, false);
            (
                Arc::new(field),
                structs.column_by_name(name).unwrap().clone(),
            )
        })
        .into();
    columns.extend(weights.map(|weights| {
        let field = Field::new("weight", weights.data_type().clone(), true);
        (Arc::new(field), weights)
    }));
    let structs = StructArray::from(columns);
    let element = Arc::new(Field::new("element", structs.data_type().clone(), false));
    let list = ListArray::new(element, lists.offsets().clone(), Arc::new(structs), None);
    let field = Field::new("messages", list.data_type().clone(), false);
    (field, Arc::new(list))
}

#[test]
fn provenance_is_part_of_the_hash_and_optional() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(2);
    let digest = row_hashes::row_digest(&rows[0]);
    rows[0].provenance = Some("human-edited".to_owned());
    assert_ne!(row_hashes::row_digest(&rows[0]), digest);
    let path = shard(folder.path(), &rows);
    let read_all = |path: &Path| read::rows(path).unwrap().collect::<Result<Vec<_>, _>>();
    let found = read_all(&path).unwrap();
    let provenances = [0, 1].map(|at: usize| found[at].provenance.as_deref());
    assert_eq!(provenances, [Some("human-edited"), None]);
    assert_eq!(row_hashes::problems(&found[0]), Vec::<String>::new());
    // Older shards lack the column, and their rows keep their hashes.
    let to = folder.path().join("older.parquet");
    with_column(&path, &to, "provenance", None);
    let old = read_all(&to).unwrap();
    assert_eq!(old[1].provenance, None);
    assert_eq!(row_hashes::problems(&old[1]), Vec::<String>::new());
    assert_eq!(row_hashes::problems(&old[0]).len(), 1);
}

#[test]
fn weights_of_messages_are_optional_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(2);
    let reply = |row: &Row| {
        let mut messages = row.messages.iter();
        messages.position(|m| m.role == Role::Assistant).unwrap()
    };
    let at = reply(&rows[0]);
    let digest = row_hashes::row_digest(&rows[0]);
    rows[0].messages[at].trained = false;
    assert_ne!(
        row_hashes::row_digest(&rows[0]),
        digest,
        "the hash knows the weight"
    );
    let path = shard(folder.path(), &rows);
    let read_all = |path: &Path| read::rows(path).unwrap().collect::<Result<Vec<_>, _>>();
    let found = read_all(&path).unwrap();
    assert!(!found[0].messages[at].trained && found[1].messages[at].trained);
    assert_eq!(row_hashes::problems(&found[0]), Vec::<String>::new());

    let to = folder.path().join("other.parquet");
    with_column(&path, &to, "messages", Some(messages_with(&path, None)));
    let old = read_all(&to).unwrap();
    assert!(
        old.iter()
            .flat_map(|row| &row.messages)
            .all(|message| message.trained)
    );
    let count: usize = rows.iter().map(|row| row.messages.len()).sum();
    let weights = |index: usize, weight: i64| {
        let weights = (0..count).map(|i| (i == index).then_some(weight));
        Arc::new(Int64Array::from_iter(weights)) as ArrayRef
    };
    let written = |weights: ArrayRef| {
        let column = messages_with(&path, Some(weights));
        with_column(&path, &to, "messages", Some(column));
    };
    written(weights(at, 0));
    assert_eq!(read_all(&to).unwrap()[0].messages, rows[0].messages);
    written(weights(at, 2));
    let error = read_error(&to);
    let wanted = format!("column messages.weight, row 1, item {at}: 2 is neither 0 nor 1");
    assert!(error.contains(&wanted), "{error}");
    written(weights(0, 0));
    let error = read_error(&to);
    assert!(
        error.contains("only replies have a weight, not a message of the system"),
        "{error}"
    );
    written(Arc::new(StringArray::from(vec![Some("0"); count])));
    assert!(read_error(&to).contains("not a whole number"));
}

#[test]
fn a_wrong_schema_is_rejected_with_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(3));
    let to = folder.path().join("other.parquet");
    let texts = |texts: [Option<&str>; 3]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let text = |name: &str, nulls: bool| Field::new(name, DataType::Utf8, nulls);

    with_column(&path, &to, "query", None);
    let error = read_error(&to);
    assert!(
        error.contains("column query is missing; the file has messages"),
        "{error}"
    );

    let numbers = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    let field = Field::new("query", DataType::Int64, false);
    with_column(&path, &to, "query", Some((field, numbers)));
    let error = read_error(&to);
    assert!(
        error.contains("column query: expected Utf8, found Int64"),
        "{error}"
    );

    let nulls = texts([Some("a"), None, Some("c")]);
    with_column(&path, &to, "query", Some((text("query", true), nulls)));
    let error = read_error(&to);
    assert!(error.contains("column query, row 2: a null"), "{error}");

    let words = texts([Some("chart"), Some("chart"), Some("poetry")]);
    with_column(
        &path,
        &to,
        "category",
        Some((text("category", false), words)),
    );
    let error = read_error(&to);
    assert!(
        error.contains("column category, row 3: \"poetry\" is not one of chart"),
        "{error}"
    );

    let json = texts([Some("{}"), Some("{"), Some("{}")]);
    with_column(
        &path,
        &to,
        "interpreter",
        Some((text("interpreter", false), json)),
    );
    let error = read_error(&to);
    assert!(error.contains("column interpreter, row 1"), "{error}");

    let inner = text("role", false);
    let roles = StructArray::from(vec![(Arc::new(inner), texts([Some("a"); 3]))]);
    let field = Field::new(
        "sampling",
        arrow_array::Array::data_type(&roles).clone(),
        false,
    );
    with_column(&path, &to, "sampling", Some((field, Arc::new(roles))));
    let error = read_error(&to);
    assert!(
        error.contains("column sampling.temperature is missing"),
        "{error}"
    );
}

#[test]
fn a_corrupt_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(20));
    let whole = fs::read(&path).unwrap();
    let to = folder.path().join("broken.parquet");
    for length in [0, 4, whole.len() / 2, whole.len() - 1] {
        fs::write(&to, &whole[..length]).unwrap();
        let error = read_error(&to);
        assert!(error.contains("broken.parquet"), "{error}");
    }
    // A changed byte is rejected, or detected by the hashes, or is in a part that is not read.
    for at in (4..whole.len() - 8).step_by(whole.len() / 97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&to, &bytes).unwrap();
        let Ok(rows) = read::rows(&to) else { continue };
        let rows: Vec<_> = rows.collect();
        let sound = rows.iter().all(|row| match row {
            Ok(row) => row_hashes::problems(row).is_empty(),
            Err(_) => false,
        });
        if sound {
            let same = read::rows(&path).unwrap().map(Result::unwrap);
            let found: Vec<Row> = rows.into_iter().map(Result::unwrap).collect();
            assert_eq!(found, same.collect::<Vec<_>>(), "byte {at}");
        }
    }
    let error = read::shards(&folder.path().join("nothing")).unwrap_err();
    assert!(error.to_string().contains("nothing"));
}

#[test]
fn fuzz_reading_shards() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), &common::rows(5));
    let whole = fs::read(&path).unwrap();
    let to = folder.path().join("fuzzed.parquet");
    bolero::check!().for_each(|bytes: &[u8]| {
        // Random bytes, and a real shard with some changed bytes.
        let mut real = whole.clone();
        for pair in bytes.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % real.len();
            real[at] ^= pair[2];
        }
        for candidate in [bytes, &real] {
            fs::write(&to, candidate).unwrap();
            if let Ok(rows) = read::rows(&to) {
                rows.take(100)
                    .for_each(|row| drop(row.map(|row| row_hashes::problems(&row))));
            }
        }
    });
}

#[test]
fn limits_outside_of_their_ranges_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(2);
    rows[1].interpreter.limits.memory_mib = u64::MAX;
    let path = shard(folder.path(), &rows);
    let read = read::rows(&path).unwrap().collect::<Result<Vec<_>, _>>();
    let error = read.unwrap_err().to_string();
    assert!(
        error.contains("column interpreter, row 2: memory_mib: 18446744073709551615"),
        "{error}"
    );
}

#[test]
fn a_small_file_that_takes_much_memory_is_refused() {
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterProperties;

    let folder = tempfile::tempdir().unwrap();
    let mut rows = common::rows(32);
    for row in &mut rows {
        row.teacher = "x".repeat(8 << 20); // one value in the dictionary
    }
    let source = shard(folder.path(), &rows);
    let read_with = |column: Option<&str>| {
        let file = File::open(&source).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let schema = reader.schema().clone();
        let path = folder.path().join("bomb.parquet");
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
            .set_dictionary_page_size_limit(1 << 30);
        if let Some(column) = column {
            properties = properties.set_column_dictionary_enabled(column.into(), false);
        }
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build())).unwrap();
        for batch in reader.build().unwrap() {
            writer.write(&batch.unwrap()).unwrap();
        }
        writer.close().unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 1 << 20);
        let read = read::rows(&path).unwrap().collect::<Result<Vec<_>, _>>();
        read.unwrap_err().to_string()
    };
    // Repeated by a dictionary, and in a page that is large itself.
    let error = read_with(None);
    assert!(error.contains("32 rows take"), "{error}");
    let error = read_with(Some("teacher"));
    assert!(error.contains("column teacher"), "{error}");
}
