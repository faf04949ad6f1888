//! The content of the benchmark, in our format and as logs of inspect_ai. It depends only on the numbers of rows and events.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use pybench_datasets::inspect_log::{
    AgentLog, LogCall, LogMessage, LogSample, LogScore, LogWriter,
};
use pybench_types::clock::rfc3339_of_unix;
use pybench_types::id::Digest;
use pybench_types::trajectory::Role;
use serde_json::{Map, Value, json};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::Result;

/// The name of the agent.
const MODEL: &str = "bench/model";
/// 2026-01-01, when the first event happened.
const START: i64 = 1_767_225_600;

pub(crate) struct Content {
    /// A dataset, and a folder with the log of the same attempts.
    pub(crate) rows: PathBuf,
    pub(crate) rows_log: PathBuf,
    /// A dataset of one long trajectory, and a folder with its log.
    pub(crate) long: PathBuf,
    pub(crate) long_log: PathBuf,
    /// A dataset of two long trajectories that differ near their ends.
    pub(crate) pair: PathBuf,
}

impl Content {
    /// Makes what is not there yet.
    pub(crate) fn make(place: &Path, rows: u64, events: u64) -> Result<Self> {
        let content = Self {
            rows: place.join(format!("rows-{rows}.jsonl")),
            rows_log: place.join(format!("rows-{rows}-logs")),
            long: place.join(format!("events-{events}.jsonl")),
            long_log: place.join(format!("events-{events}-logs")),
            pair: place.join(format!("events-{events}-pair.jsonl")),
        };
        fs::create_dir_all(&content.rows_log)?;
        fs::create_dir_all(&content.long_log)?;
        lines(&content.rows, rows, |number| {
            row(&sample(number, rows), number, rows)
        })?;
        let samples = (1..=rows).map(|number| (sample(number, rows), category(number, rows)));
        log(&content.rows_log.join("rows.eval"), samples)?;
        lines(&content.long, 1, |_| row(&long(events), 1, 1))?;
        lines(&content.pair, 2, |number| {
            row(&one_of_pair(number, events), number, 2)
        })?;
        long_log(&content.long_log.join("events.eval"), events)?;
        Ok(content)
    }
}

/// The first of the rows that the filter leaves, and the row that the search finds.
fn first_rare(rows: u64) -> u64 {
    (rows / 2 / 1000 + 1) * 1000
}

fn needle(rows: u64) -> u64 {
    (rows * 7 / 9).max(1)
}

fn category(number: u64, rows: u64) -> String {
    match number >= first_rare(rows) && number.is_multiple_of(1000) {
        true => "rare".to_owned(),
        false => format!("category {}", number % 12),
    }
}

fn message(role: Role, text: String) -> LogMessage {
    LogMessage {
        role,
        text,
        images: Vec::new(),
        calls: Vec::new(),
        answers: String::new(),
        error: String::new(),
    }
}

fn call(id: String, code: &str) -> LogCall {
    LogCall {
        id,
        function: "python".to_owned(),
        arguments: json!({"code": code}).to_string(),
    }
}

/// The attempt at a task: two replies, of which the first runs a cell.
fn sample(number: u64, rows: u64) -> LogSample {
    let marks = match number {
        number if number == first_rare(rows) => " first-of-rare",
        number if number == needle(rows) => " needle",
        _ => "",
    };
    let digest = Digest::of_json(&number);
    let column = &digest.as_str()[..6];
    let query = format!(
        "Task-{number}:{marks} compute the mean of the column {column} by month, and name the largest."
    );
    let code = format!(
        "import pandas as pd\nframe = pd.read_csv('data/{column}.csv')\nmeans = frame.groupby('month')['{column}'].mean()\n\
         print(means.sort_values(ascending=False).head(12))"
    );
    let output: Vec<String> = (1..=12)
        .map(|month| format!("{month:>2}    {}.{}", number % 97, month * 7))
        .collect();
    LogSample {
        id: number.to_string(),
        epoch: 1,
        uuid: digest.as_str()[..22].to_owned(),
        messages: vec![
            message(Role::System, "You run code in a notebook.".to_owned()),
            message(Role::User, query),
            LogMessage {
                calls: vec![call("a".to_owned(), &code)],
                ..message(Role::Assistant, "I read the file and group it.".to_owned())
            },
            LogMessage {
                answers: "a".to_owned(),
                ..message(Role::Tool, output.join("\n"))
            },
            message(
                Role::Assistant,
                format!("The largest mean is {} in month 1.", number % 97),
            ),
        ],
        scores: vec![LogScore {
            name: "strict".to_owned(),
            value: if number.is_multiple_of(3) { "I" } else { "C" }.to_owned(),
            passed: Some(!number.is_multiple_of(3)),
            answer: String::new(),
            explanation: String::new(),
        }],
        tokens_in: 200,
        tokens_out: 80,
        ..LogSample::default()
    }
}

/// An attempt of so many events: each reply runs a cell.
fn long(events: u64) -> LogSample {
    let turns = events / 2;
    let mut messages = vec![
        message(Role::System, "You run code in a notebook.".to_owned()),
        message(Role::User, "Count to the end.".to_owned()),
    ];
    for turn in 1..=turns {
        let code = format!("total += {turn}\nprint('step', {turn}, total)");
        messages.push(LogMessage {
            calls: vec![call(format!("call-{turn}"), &code)],
            ..message(
                Role::Assistant,
                format!("step-{turn} I add the next number and print the sum so far."),
            )
        });
        messages.push(LogMessage {
            answers: format!("call-{turn}"),
            ..message(Role::Tool, format!("step {turn} {}", turn * (turn + 1) / 2))
        });
    }
    LogSample {
        id: "1".to_owned(),
        epoch: 1,
        uuid: "long".to_owned(),
        messages,
        ..LogSample::default()
    }
}

/// As [`long`]; an output of the second one differs, ten turns before the last one.
fn one_of_pair(number: u64, events: u64) -> LogSample {
    let mut sample = long(events);
    sample.uuid = format!("long-{number}");
    let output = sample.messages.iter_mut().rev().nth(20);
    if let Some(output) = output.filter(|_| number == 2) {
        output.text += " differs";
    }
    sample
}

/// A row of our dataset.
fn row(sample: &LogSample, number: u64, rows: u64) -> String {
    json!({
        "trajectory_id": sample.uuid, "category": category(number, rows), "teacher": MODEL, "format": "tools",
        "language": "en", "end": "finished", "messages": sample.as_messages(),
    })
    .to_string()
}

/// Writes a file of lines. An unfinished one goes on after its last whole line.
fn lines(path: &Path, count: u64, line: impl Fn(u64) -> String) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let unfinished = path.with_extension("part");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&unfinished)?;
    let (mut written, mut whole) = (0_u64, 0_u64);
    let mut reader = BufReader::new(&file);
    let mut text = Vec::new();
    while reader.read_until(b'\n', &mut text)? > 0 && text.ends_with(b"\n") {
        written += 1;
        whole += text.len() as u64;
        text.clear();
    }
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    let mut out = BufWriter::new(file);
    for number in written + 1..=count {
        if number % 100_000 == 0 {
            eprintln!("bench: {number} of {count} rows");
        }
        writeln!(out, "{}", line(number))?;
    }
    out.into_inner()
        .map_err(|error| error.to_string())?
        .sync_all()?;
    Ok(fs::rename(unfinished, path)?)
}

/// Writes a log of inspect_ai. A zip cannot go on after a kill, so an unfinished one is written again.
fn log(path: &Path, samples: impl Iterator<Item = (LogSample, String)>) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let unfinished = path.with_extension("part");
    let about = AgentLog {
        id: "bench".to_owned(),
        run: "bench".to_owned(),
        task: "bench".to_owned(),
        model: MODEL.to_owned(),
        created: rfc3339_of_unix(START),
        metadata: Map::new(),
    };
    let mut log = LogWriter::new(BufWriter::new(File::create(&unfinished)?), about)?;
    for (number, (sample, category)) in samples.enumerate() {
        if number % 100_000 == 0 && number > 0 {
            eprintln!("bench: {number} samples of the log");
        }
        let metadata = [("category".to_owned(), json!(category))];
        log.sample(&sample, &metadata.into_iter().collect())?;
    }
    log.finish()?.flush()?;
    Ok(fs::rename(unfinished, path)?)
}

/// The log of the long trajectory, with an event for each reply and each call, as inspect_ai records them.
fn long_log(path: &Path, events: u64) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let plain = path.with_extension("plain");
    let _ = fs::remove_file(&plain);
    log(&plain, std::iter::once((long(events), "long".to_owned())))?;
    let mut archive = ZipArchive::new(File::open(&plain)?)?;
    let unfinished = path.with_extension("part");
    let mut out = ZipWriter::new(BufWriter::new(File::create(&unfinished)?));
    for name in ["samples/1_epoch_1.json", "summaries.json", "header.json"] {
        let mut value: Value = serde_json::from_reader(BufReader::new(archive.by_name(name)?))?;
        if name.starts_with("samples/") {
            let messages = value["messages"].as_array().cloned().unwrap_or_default();
            value["events"] = recorded(&messages);
            value["events_data"] = json!({"messages": messages, "calls": []});
        }
        out.start_file(name, SimpleFileOptions::default())?;
        serde_json::to_writer(&mut out, &value)?;
    }
    out.finish()?.flush()?;
    fs::remove_file(plain)?;
    Ok(fs::rename(unfinished, path)?)
}

/// The events of a conversation. The input of a reply is a range of the pool of messages.
fn recorded(messages: &[Value]) -> Value {
    let event = |(at, message): (usize, &Value)| {
        let (id, time) = (format!("event-{at}"), rfc3339_of_unix(START + at as i64));
        match message["role"].as_str()? {
            "assistant" => Some(json!({
                "uuid": id, "timestamp": time, "working_start": at, "event": "model", "model": MODEL, "input": [],
                "input_refs": [[0, at]], "tools": [], "tool_choice": "auto", "config": {},
                "output": {"model": MODEL, "choices": [{"message": message, "stop_reason": "tool_calls"}]},
            })),
            "tool" => {
                let call = &messages[at - 1]["tool_calls"][0];
                Some(json!({
                    "uuid": id, "timestamp": time, "working_start": at, "event": "tool", "type": "function",
                    "id": call["id"], "function": call["function"], "arguments": call["arguments"],
                    "result": message["content"],
                }))
            }
            _ => None,
        }
    };
    messages.iter().enumerate().filter_map(event).collect()
}
