//! Writes an `.eval` log that `inspect view` opens, one sample at a time.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};

use pybench_types::text::cut;
use pybench_types::trajectory::Role;
use serde_json::{Map, Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZIP64_BYTES_THR, ZipWriter};

use super::{HEADER, LogCall, LogMessage, LogSample, LogScore, SAMPLES, SUMMARIES, VERSION};

/// Maximum length of texts in the summaries, in characters: those of inputs, and of explanations and metadata.
const MAX_INPUT: usize = 5000;
const MAX_TEXT: usize = 1000;

/// What a log is about: one agent on one suite.
#[derive(Clone, Debug, Default)]
pub struct AgentLog {
    /// Ids of the log and of the evaluation that it is part of.
    pub id: String,
    pub run: String,
    /// Name of the suite.
    pub task: String,
    /// Name of the agent.
    pub model: String,
    /// When the evaluation ended, as RFC 3339.
    pub created: String,
    pub metadata: Map<String, Value>,
}

/// Writes a log.
pub struct LogWriter<W: Write + Seek> {
    zip: ZipWriter<W>,
    about: AgentLog,
    /// The summaries so far, which become a member of their own.
    summaries: BufWriter<File>,
    samples: u64,
    completed: u64,
    tokens_in: u64,
    tokens_out: u64,
    scores: BTreeMap<String, Tally>,
}

/// How many samples have a score, and how many passed by it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    scored: u64,
    passed: u64,
}

impl<W: Write + Seek> LogWriter<W> {
    /// Starts a log.
    ///
    /// # Errors
    /// There is no room for a temporary file.
    pub fn new(out: W, about: AgentLog) -> io::Result<Self> {
        Ok(Self {
            zip: ZipWriter::new(out),
            about,
            summaries: BufWriter::new(tempfile::tempfile()?),
            samples: 0,
            completed: 0,
            tokens_in: 0,
            tokens_out: 0,
            scores: BTreeMap::new(),
        })
    }

    /// Adds a sample, with what else is known of it.
    ///
    /// # Errors
    /// The log cannot be written, or has a sample with this id and epoch.
    pub fn sample(&mut self, sample: &LogSample, metadata: &Map<String, Value>) -> io::Result<()> {
        let name = format!("{SAMPLES}{}_epoch_{}.json", sample.id, sample.epoch);
        let whole = whole_sample(sample, metadata, &self.about.model);
        let whole = serde_json::to_vec(&whole)?;
        self.zip.start_file(name, options(whole.len() as u64))?;
        self.zip.write_all(&whole)?;
        let separator = if self.samples == 0 { "[" } else { "," };
        self.summaries.write_all(separator.as_bytes())?;
        let summary = summary(sample, metadata, &self.about.model);
        serde_json::to_writer(&mut self.summaries, &summary)?;
        self.samples += 1;
        self.completed += u64::from(sample.error.is_empty());
        self.tokens_in = self.tokens_in.saturating_add(sample.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(sample.tokens_out);
        for score in &sample.scores {
            let tally = self.scores.entry(score.name.clone()).or_default();
            if let Some(passed) = score.passed {
                tally.scored += 1;
                tally.passed += u64::from(passed);
            }
        }
        Ok(())
    }

    /// Writes the summaries and the head.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let end = if self.samples == 0 { "[]" } else { "]" };
        self.summaries.write_all(end.as_bytes())?;
        let mut summaries = self
            .summaries
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        let size = summaries.stream_position()?;
        summaries.seek(SeekFrom::Start(0))?;
        self.zip.start_file(SUMMARIES, options(size))?;
        io::copy(&mut BufReader::new(summaries), &mut self.zip)?;
        let usage = usage(&self.about.model, self.tokens_in, self.tokens_out);
        let scores: Vec<Value> = self
            .scores
            .iter()
            .map(|(name, tally)| results(name, *tally, self.samples))
            .collect();
        let about = self.about;
        let head = json!({
            "version": VERSION,
            "status": "success",
            "eval": {
                "eval_id": about.id,
                "run_id": about.run,
                "created": about.created,
                "task": about.task,
                "task_id": about.id,
                "task_version": 0,
                "dataset": {"name": about.task, "samples": self.samples},
                "model": about.model,
                "config": {},
                "packages": {"pybench": env!("CARGO_PKG_VERSION")},
                "metadata": about.metadata,
            },
            "plan": {"name": "plan", "steps": [], "config": {}},
            "results": {
                "total_samples": self.samples, "completed_samples": self.completed, "scores": scores,
            },
            "stats": {"started_at": "", "completed_at": about.created, "model_usage": usage},
        });
        self.zip.start_file(HEADER, options(0))?;
        serde_json::to_writer(&mut self.zip, &head)?;
        Ok(self.zip.finish()?)
    }
}

/// How a member of this size is written: with a fixed time, so that the same log has the same bytes.
fn options(size: u64) -> SimpleFileOptions {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let options = options.last_modified_time(DateTime::default());
    options.large_file(size >= ZIP64_BYTES_THR)
}

/// The result of a scorer on all samples.
fn results(name: &str, tally: Tally, samples: u64) -> Value {
    let mut metrics = Map::new();
    if tally.scored > 0 {
        let value = tally.passed as f64 / tally.scored as f64;
        let accuracy = json!({"name": "accuracy", "value": value, "params": {}});
        metrics.insert("accuracy".to_owned(), accuracy);
    }
    json!({
        "name": name, "scorer": name, "params": {}, "metrics": metrics,
        "scored_samples": tally.scored, "unscored_samples": samples - tally.scored,
    })
}

fn usage(model: &str, tokens_in: u64, tokens_out: u64) -> Value {
    let of_model = json!({
        "input_tokens": tokens_in, "output_tokens": tokens_out,
        "total_tokens": tokens_in.saturating_add(tokens_out),
    });
    json!({ model: of_model })
}

fn whole_sample(sample: &LogSample, metadata: &Map<String, Value>, model: &str) -> Value {
    let messages = messages(sample, model);
    let is_reply = |message: &&LogMessage| message.role == Role::Assistant;
    let replies = sample.messages.iter().filter(is_reply).count();
    let before = sample
        .messages
        .iter()
        .take_while(|message| !is_reply(message))
        .count();
    let last = sample
        .messages
        .iter()
        .rposition(|message| is_reply(&message));
    let output = last.map(
        |at| json!({"model": model, "choices": [{"message": messages[at], "stop_reason": "stop"}]}),
    );
    let mut whole = json!({
        "id": sample.id,
        "epoch": sample.epoch,
        "input": messages[..before],
        "target": sample.target,
        "messages": messages,
        "scores": scores(sample, usize::MAX),
        "metadata": metadata,
        "model_usage": usage(model, sample.tokens_in, sample.tokens_out),
        "total_time": sample.seconds,
        "uuid": sample.uuid,
        "turn_count": replies,
    });
    let error = json!({"message": sample.error, "traceback": "", "traceback_ansi": ""});
    let further = [
        ("output", output),
        ("error", Some(error).filter(|_| !sample.error.is_empty())),
        ("limit", sample.limit.as_ref().map(|limit| json!(limit))),
    ];
    for (key, value) in further {
        if let Some(value) = value {
            whole[key] = value;
        }
    }
    whole
}

fn summary(sample: &LogSample, metadata: &Map<String, Value>, model: &str) -> Value {
    let is_reply = |message: &&LogMessage| message.role == Role::Assistant;
    let before = sample
        .messages
        .iter()
        .take_while(|message| !is_reply(message));
    let query = before.filter(|message| message.role == Role::User).last();
    let short = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Some((key.clone(), Value::String(cut(text, MAX_TEXT)))),
        Value::Number(_) | Value::Bool(_) => Some((key.clone(), value.clone())),
        _ => None,
    };
    let metadata: Map<String, Value> = metadata.iter().filter_map(short).collect();
    let mut summary = json!({
        "id": sample.id,
        "epoch": sample.epoch,
        "input": cut(query.map_or("", |message| &message.text), MAX_INPUT),
        "target": cut(&sample.target, MAX_INPUT),
        "metadata": metadata,
        "scores": scores(sample, MAX_TEXT),
        "model_usage": usage(model, sample.tokens_in, sample.tokens_out),
        "total_time": sample.seconds,
        "uuid": sample.uuid,
        "completed": true,
        "message_count": sample.messages.len(),
        "turn_count": sample.messages.iter().filter(is_reply).count(),
    });
    if !sample.error.is_empty() {
        summary["error"] = json!(cut(&sample.error, MAX_TEXT));
    }
    if let Some(limit) = &sample.limit {
        summary["limit"] = json!(limit.kind);
    }
    summary
}

/// The scores by name, with texts of at most so many characters.
fn scores(sample: &LogSample, max: usize) -> Value {
    let score = |score: &LogScore| {
        let mut written = json!({"value": value(&score.value)});
        for (key, text) in [
            ("answer", &score.answer),
            ("explanation", &score.explanation),
        ] {
            if !text.is_empty() {
                written[key] = json!(cut(text, max));
            }
        }
        (score.name.clone(), written)
    };
    Value::Object(sample.scores.iter().map(score).collect())
}

/// The value of a score: a number, a list or an object as JSON, anything else as text.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_))) => {
            value
        }
        _ => json!(text),
    }
}

fn messages(sample: &LogSample, model: &str) -> Vec<Value> {
    let calls = sample.messages.iter().flat_map(|message| &message.calls);
    let functions: HashMap<&str, &str> = calls.map(|call| (&*call.id, &*call.function)).collect();
    let message = |(number, one): (usize, &LogMessage)| {
        let mut written = json!({
            "id": format!("{}-{number}", sample.uuid),
            "role": one.role,
            "content": content(one),
        });
        if one.role == Role::Assistant {
            written["source"] = json!("generate");
            written["model"] = json!(model);
            if !one.calls.is_empty() {
                written["tool_calls"] = one.calls.iter().map(call).collect();
            }
        }
        if one.role == Role::Tool {
            written["tool_call_id"] = json!(one.answers);
            if let Some(function) = functions.get(&*one.answers) {
                written["function"] = json!(function);
            }
            if !one.error.is_empty() {
                written["error"] = json!({"type": "unknown", "message": one.error});
            }
        }
        written
    };
    sample.messages.iter().enumerate().map(message).collect()
}

fn content(message: &LogMessage) -> Value {
    if message.images.is_empty() {
        return json!(message.text);
    }
    let text = json!({"type": "text", "text": message.text});
    let image = |url: &String| json!({"type": "image", "image": url, "detail": "auto"});
    let images = message.images.iter().map(image);
    std::iter::once(text).chain(images).collect()
}

fn call(call: &LogCall) -> Value {
    let arguments = match serde_json::from_str(&call.arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ => json!({"input": call.arguments}),
    };
    json!({"id": call.id, "function": call.function, "arguments": arguments, "type": "function"})
}
