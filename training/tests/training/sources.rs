//! The schemas of the sets that recipes name, notebooks, mixtures, and the cache of tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
    StructBuilder,
};
use arrow::datatypes::{DataType, Field, Fields};
use parquet::arrow::ArrowWriter;
use pybench_training::train::{Dataset, Recipe};
use pybench_training_data::{
    LengthLimit, Message, Overflow, Record, RecordKind, Renderer, Source, TokenClass, TokenStore,
    read, tokenize,
};
use pybench_types::held_out::Unseen;
use serde_json::{Value, json};

use crate::support::data;

/// A conversation of two turns.
pub(crate) fn talk(number: usize) -> Vec<Message> {
    vec![
        Message::new("system", "You are an agent."),
        Message::new(
            "user",
            format!("[INFO]The data is uploaded to ./data/{number}.csv"),
        ),
        Message::new("user", "把它画成图。"),
        Message::new("assistant", "```python\nprint(1)\n```"),
        Message::new("user", "[INFO]This is a Code Interpreter Message:\n1"),
        Message::new("assistant", format!("Finished: {number}.")),
    ]
}

/// A column of messages whose structs have their fields in that order.
fn column(talks: &[Vec<Message>], order: [&str; 2]) -> ArrayRef {
    let fields: Fields = order
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true))
        .collect();
    let text = || Box::new(StringBuilder::new()) as Box<dyn ArrayBuilder>;
    let mut list = ListBuilder::new(StructBuilder::new(fields, vec![text(), text()]));
    for talk in talks {
        for message in talk {
            for (place, name) in order.iter().enumerate() {
                let value = match *name {
                    "role" => &message.role,
                    _ => &message.content,
                };
                let builder = list.values().field_builder::<StringBuilder>(place).unwrap();
                builder.append_value(value);
            }
            list.values().append(true);
        }
        list.append(true);
    }
    Arc::new(list.finish())
}

fn texts(values: &[String]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

pub(crate) fn write_parquet(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// A file as `xingyaoww/code-act` has them.
pub(crate) fn code_act(path: &Path, rows: usize) {
    let talks: Vec<_> = (0..rows).map(talk).collect();
    let ids: Vec<_> = (0..rows).map(|n| format!("codeact-{n}")).collect();
    let columns = vec![
        ("id", texts(&ids)),
        ("conversations", column(&talks, ["content", "role"])),
    ];
    write_parquet(path, columns);
}

/// A file as `bigcode/starcoderdata` has them.
pub(crate) fn starcoder(path: &Path, contents: &[String]) {
    let ids: Vec<_> = (0..contents.len()).map(|n| n.to_string()).collect();
    let stars: ArrayRef = Arc::new(Int64Array::from(vec![1; contents.len()]));
    let columns = vec![
        ("max_stars_repo_path", texts(&ids)),
        ("max_stars_count", stars),
        ("content", texts(contents)),
        ("id", texts(&ids)),
    ];
    write_parquet(path, columns);
}

fn write_lines(path: &Path, rows: impl Iterator<Item = Value>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text: String = rows.map(|row| format!("{row}\n")).collect();
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_named_sets_are_read_in_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let talks: Vec<_> = (0..3).map(talk).collect();
    let prompts: Vec<_> = (0..3).map(|n| format!("{n}")).collect();
    // PyInstruct; the same as one JSON array.
    let row = |n: usize| json!({"messages": talk(n), "tools": null, "tool_choices": "auto"});
    write_lines(&at("pyinstruct.jsonl"), (0..3).map(row));
    let rows: Vec<_> = (0..3).map(row).collect();
    std::fs::write(at("pyinstruct.json"), serde_json::to_string(&rows).unwrap()).unwrap();
    let row = |n: usize| json!({"id": n, "messages": talk(n)});
    write_lines(&at("code_feedback.jsonl"), (0..3).map(row));
    code_act(&at("code_act.parquet"), 3);
    let columns = vec![
        ("prompt", texts(&prompts)),
        ("prompt_id", texts(&prompts)),
        ("messages", column(&talks, ["content", "role"])),
    ];
    write_parquet(&at("ultrachat.parquet"), columns);
    // Our own shards have more columns; the trainer looks at these.
    let held: ArrayRef = Arc::new(arrow::array::BooleanArray::from(vec![false, true, false]));
    let columns = vec![
        ("id", texts(&prompts)),
        ("messages", column(&talks, ["role", "content"])),
        ("held_out_template", held.clone()),
    ];
    write_parquet(&at("older.parquet"), columns);
    let unseen = ["files", "pairs", ""].map(str::to_owned);
    let levels: ArrayRef = Arc::new(arrow::array::UInt32Array::from(vec![3, 0, 1]));
    let columns = vec![
        ("messages", column(&talks, ["role", "content"])),
        ("held_out_template", held),
        ("unseen", texts(&unseen)),
        ("difficulty", levels),
    ];
    write_parquet(&at("ours.parquet"), columns);
    let names = [
        "pyinstruct.jsonl",
        "pyinstruct.json",
        "code_feedback.jsonl",
        "code_act.parquet",
        "ultrachat.parquet",
        "older.parquet",
        "ours.parquet",
    ];
    for name in names {
        let found = read(&Source::from_path(at(name))).unwrap();
        let found_talks: Vec<_> = found.iter().map(|one| one.messages.clone()).collect();
        assert_eq!(found_talks, talks, "{name}");
        let unseen: Vec<_> = found.iter().map(|one| one.unseen).collect();
        let second = match name {
            "older.parquet" => Unseen::Template,
            "ours.parquet" => Unseen::Pairs,
            _ => Unseen::Files,
        };
        assert_eq!(unseen, [Unseen::Files, second, Unseen::Files], "{name}");
        let levels: Vec<_> = found.iter().map(|one| one.difficulty).collect();
        let expected = if name == "ours.parquet" {
            [3, 0, 1]
        } else {
            [0; 3]
        };
        assert_eq!(levels, expected, "{name}");
    }
}

#[test]
fn notebooks_are_texts_wherever_they_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let contents: Vec<_> = (0..70)
        .map(|n| format!("<jupyter_code>print({n})"))
        .collect();
    starcoder(&folder.path().join("a/part.parquet"), &contents);
    let cell = json!({"cell_type": "code", "source": ["print(1)"], "outputs": []});
    let notebook = json!({"nbformat": 4, "cells": [cell]}).to_string();
    std::fs::write(folder.path().join("b.ipynb"), notebook).unwrap();
    let source = Source {
        kind: RecordKind::Text,
        ..Source::from_path(folder.path())
    };
    let resolved = source.resolve().unwrap();
    let found = resolved.records().map(|record| match record.unwrap() {
        Record::Text { text, .. } => text,
        other => panic!("{other:?}"),
    });
    let wanted = contents
        .into_iter()
        .chain(["```python\nprint(1)\n```".into()]);
    assert!(found.eq(wanted));
}

#[test]
fn rows_are_streamed_and_errors_have_a_location() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let good = json!({"messages": talk(0)}).to_string();
    std::fs::write(&path, format!("{good}\n{good}\nbroken\n")).unwrap();
    let resolved = Source::from_path(&path).resolve().unwrap();
    let mut records = resolved.records();
    assert!(records.next().unwrap().is_ok() && records.next().unwrap().is_ok());
    let error = records.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("a.jsonl:3"), "{error}");
    let path = folder.path().join("b.jsonl");
    std::fs::write(&path, json!({"rows": 1}).to_string()).unwrap();
    let error = read(&Source::from_path(path)).unwrap_err().to_string();
    assert!(
        error.contains("b.jsonl:1") && error.contains("messages"),
        "{error}"
    );
}

// --- tokens --------------------------------------------------------------------------------------

fn renderer() -> Renderer {
    Renderer::load(&data("templates/chatml")).unwrap()
}

const LIMIT: LengthLimit = LengthLimit {
    max_seq_len: 256,
    overflow: Overflow::SplitWithContext,
};

fn documents(store: &TokenStore) -> Vec<(Vec<u32>, Vec<u8>, String)> {
    let document = |n| {
        (
            store.ids(n).collect(),
            store.classes(n).to_vec(),
            store.location(n),
        )
    };
    (0..store.len()).map(document).collect()
}

#[test]
fn tokens_of_the_cache_are_those_that_were_made() {
    let folder = tempfile::tempdir().unwrap();
    let (path, cache) = (folder.path().join("a.parquet"), folder.path().join("cache"));
    code_act(&path, 600);
    let renderer = renderer();
    let files = || {
        std::fs::read_dir(&cache)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect::<Vec<_>>()
    };
    let source = Source::from_path(&path);
    let made = tokenize(&source, &renderer, LIMIT, &cache).unwrap();
    // In the order of the rows, independent of threads, and equal to rendering one by one.
    let one_by_one: Vec<_> = read(&source)
        .unwrap()
        .iter()
        .map(|c| renderer.render(&c.messages).unwrap().ids)
        .collect();
    let ids: Vec<Vec<u32>> = (0..made.len()).map(|n| made.ids(n).collect()).collect();
    assert_eq!(ids, one_by_one);
    let first = files();
    assert_eq!(first.len(), 1);
    let file = &first[0];
    let written = std::fs::metadata(file).unwrap().modified().unwrap();
    let read_again = tokenize(&source, &renderer, LIMIT, &cache).unwrap();
    assert_eq!(documents(&read_again), documents(&made));
    assert_eq!(read_again.stats(), made.stats());
    assert_eq!(
        std::fs::metadata(file).unwrap().modified().unwrap(),
        written
    );
    // A broken file is written again.
    let bytes = std::fs::read(file).unwrap();
    // Beside the first, which is still mapped.
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    let rewritten = tokenize(&source, &renderer, LIMIT, &cache).unwrap();
    assert_eq!(documents(&rewritten), documents(&made));
    // Another length, tokenizer, template or content is another entry.
    let shorter = LengthLimit {
        max_seq_len: 128,
        ..LIMIT
    };
    tokenize(&source, &renderer, shorter, &cache).unwrap();
    let other = Renderer::load(&data("templates/llama3")).unwrap();
    tokenize(&source, &other, LIMIT, &cache).unwrap();
    code_act(&path, 601);
    tokenize(&source, &renderer, LIMIT, &cache).unwrap();
    assert_eq!(files().len(), 4);
}

#[test]
fn observations_prompts_and_replies_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    write_lines(&path, [json!({"messages": talk(7)})].into_iter());
    let renderer = renderer();
    let store = tokenize(&Source::from_path(path), &renderer, LIMIT, folder.path()).unwrap();
    let of = |class: TokenClass| {
        let pairs = store.ids(0).zip(store.classes(0));
        let ids: Vec<u32> = pairs
            .filter(|(_, c)| **c == class as u8)
            .map(|(id, _)| id)
            .collect();
        renderer.tokenizer.decode(&ids).unwrap()
    };
    let observed = "[INFO]This is a Code Interpreter Message:\n1";
    assert!(
        of(TokenClass::Observation).contains(observed)
            && !of(TokenClass::Prompt).contains(observed)
    );
    assert!(
        of(TokenClass::Prompt).contains("画成图") && of(TokenClass::Prompt).contains("uploaded")
    );
    let replies = "```python\nprint(1)\n```<|im_end|>Finished: 7.<|im_end|>";
    assert_eq!(of(TokenClass::Trained), replies);
}

#[test]
fn a_reply_with_the_weight_zero_never_has_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut messages = json!(talk(7));
    messages[3]["weight"] = 0.into();
    write_lines(&path, [json!({ "messages": messages })].into_iter());
    let text = format!(
        "name='a'\nmodel='m'\n[train]\nmax_seq_len=256\nmax_steps=1\nprompt_weight=1\nobservation_weight=1\n\
         [[data]]\npath='{}'\n",
        path.display()
    );
    let recipe = Recipe::parse(&text, Path::new("r.toml")).unwrap();
    let renderer = renderer();
    let data = Dataset::load(&recipe, &renderer, 520, folder.path()).unwrap();
    let document = data.document(0);
    let pairs = document.ids.iter().zip(&document.weights);
    let without_loss = pairs.filter(|(_, weight)| **weight == 0.0);
    let ids: Vec<u32> = without_loss.map(|(id, _)| *id as u32).collect();
    let text = renderer.tokenizer.decode(&ids).unwrap();
    assert!(
        text.contains("```python\nprint(1)\n```<|im_end|>"),
        "{text}"
    );
    assert!(
        !text.contains("Finished") && !text.contains("画成图"),
        "{text}"
    );
}

#[test]
fn long_texts_are_cut_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let text = "for i in range(10): print(i) <|endoftext|>\n".repeat(30);
    starcoder(&path, std::slice::from_ref(&text));
    let renderer = renderer();
    let source = Source {
        kind: RecordKind::Text,
        ..Source::from_path(&path)
    };
    let limit = LengthLimit {
        max_seq_len: 50,
        overflow: Overflow::Error,
    };
    let store = tokenize(&source, &renderer, limit, folder.path()).unwrap();
    assert!(store.len() > 5 && (0..store.len()).all(|n| store.length(n) <= 50));
    let ids: Vec<u32> = (0..store.len()).flat_map(|n| store.ids(n)).collect();
    let tokenizer = &renderer.tokenizer;
    let inner = &ids[1..ids.len() - 1];
    assert_eq!(tokenizer.decode(inner).unwrap(), text);
    assert_eq!(
        (Some(ids[0]), ids.last().copied()),
        (tokenizer.bos, tokenizer.eos)
    );
    assert!(
        !inner.iter().any(|&id| tokenizer.is_control(id)),
        "a text's control token was obeyed"
    );
}

#[test]
fn a_mixture_reports_its_parts_and_keeps_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    code_act(&at("a.parquet"), 40);
    write_lines(
        &at("b.jsonl"),
        (0..20).map(|n| json!({"messages": talk(n)})),
    );
    starcoder(&at("c.parquet"), &vec!["print(1)".to_owned(); 10]);
    let recipe = |seed: u64| {
        let text = format!(
            "name='a'\nmodel='m'\nseed={seed}\n[train]\nmax_seq_len=256\nmax_steps=1\nobservation_weight=0.25\n[[data]]\nname='acts'\npath='{}'\nweight=0.5\n[[data]]\npath='{}'\nweight=2\n[[data]]\npath='{}'\nkind='text'\n",
            at("a.parquet").display(),
            at("b.jsonl").display(),
            at("c.parquet").display()
        );
        Recipe::parse(&text, Path::new("r.toml")).unwrap()
    };
    let load = |seed| Dataset::load(&recipe(seed), &renderer(), 520, &at("cache")).unwrap();
    let mut data = load(1);
    let counts: Vec<_> = data
        .mixture
        .iter()
        .map(|s| (s.records, s.documents))
        .collect();
    assert_eq!(counts, [(40, 40), (20, 20), (10, 10)]);
    assert_eq!(data.mixture[0].source, "acts");
    let trained = |s: &pybench_training::train::SourceShare| s.trained as f64 * s.weight;
    let all: f64 = data.mixture.iter().map(trained).sum();
    for share in &data.mixture {
        assert!((share.share - trained(share) / all).abs() < 1e-9 && share.tokens >= share.trained);
    }
    let rows = data.rows(0).clone();
    let mut seen = rows.concat();
    seen.sort_unstable();
    assert_eq!(seen.len(), 20 + 2 * 20 + 10);
    assert_eq!(
        seen.iter().filter(|&&n| n == 40).count(),
        2,
        "weight 2 is seen twice"
    );
    assert_eq!(load(1).rows(0), &rows);
    assert_ne!(load(2).rows(0), &rows);
    assert_ne!(data.rows(1), &rows);
    let weights = data.document(45).weights;
    let some = |wanted: f32| weights.contains(&wanted);
    assert!(some(0.0) && some(0.25) && some(1.0), "{weights:?}");
    assert_eq!(data.digest(), load(1).digest());
}

#[test]
fn overflow_is_a_choice_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let long = |n: usize| {
        let mut messages = talk(n);
        messages.extend(talk(n + 1).into_iter().skip(2));
        json!({"messages": messages})
    };
    write_lines(&path, (0..5).map(long));
    let renderer = renderer();
    let whole = renderer
        .render(&read(&Source::from_path(&path)).unwrap()[0].messages)
        .unwrap();
    let make = |overflow| {
        let limit = LengthLimit {
            max_seq_len: whole.ids.len() * 3 / 4,
            overflow,
        };
        tokenize(&Source::from_path(&path), &renderer, limit, folder.path())
    };
    let error = make(Overflow::Error).unwrap_err().to_string();
    assert!(
        error.contains("a.jsonl:1") && error.contains("train.overflow"),
        "{error}"
    );
    for choice in [
        Overflow::Drop,
        Overflow::CutAtTurn,
        Overflow::SplitWithContext,
    ] {
        let store = make(choice).unwrap();
        let lost = store.stats().overflow;
        assert_eq!(lost.conversations, 5, "{choice:?}");
        let left = store.stats().trained + lost.lost_trained;
        assert_eq!(left, 5 * whole.trained(), "{choice:?}");
        match choice {
            Overflow::Drop => assert_eq!((store.len(), lost.lost), (0, 5 * whole.ids.len())),
            Overflow::CutAtTurn => assert!(store.len() == 5 && lost.lost > 0),
            _ => assert!(store.len() > 5 && lost.lost_trained == 0),
        }
    }
}

pub(crate) fn recipe_of(path: &Path, text: &str) -> PathBuf {
    std::fs::write(path, text).unwrap();
    path.to_owned()
}
