//! `dataset export` and `dataset convert`: write datasets in other schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use pybench_datasets::formats::{Conversation, LostFields, Schema, TraceReader, of_row};
use pybench_datasets::read;
use pybench_datasets::scrub::{Scrubber, SecretCounts};
use pybench_run::{NewFile, NewFolder, RunError};
use serde_json::Value;

use super::{FromArgs, to_run_error};

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Arguments of `dataset export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    from: FromArgs,
    /// Schema: pyinstruct, code-act, code-feedback, ultrachat, jupyter-agent, upstream, conversations, openai or
    /// traces
    #[arg(long, value_name = "SCHEMA", value_parser = parse_schema)]
    to: Schema,
    /// Output file; for traces a folder, with one file per session, which replace those of an earlier export. If
    /// several splits are exported, each is written to a file of its own: rows.jsonl becomes rows-train.jsonl and
    /// rows-test.jsonl
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Export only this split, such as train
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Write cells as text, even if the schema supports tool calls
    #[arg(long)]
    plain: bool,
    /// Keep user messages that follow each other. By default they are merged into one, because many chat templates
    /// refuse them
    #[arg(long)]
    keep_user_messages: bool,
}

impl ExportArgs {
    pub(super) fn source_mut(&mut self) -> &mut PathBuf {
        &mut self.from.dataset
    }
}

/// Arguments of `dataset convert`.
#[derive(Clone, Debug, clap::Args)]
pub struct ConvertArgs {
    /// Input file, JSON lines
    file: PathBuf,
    /// Schema of the input
    #[arg(long, value_name = "SCHEMA", value_parser = parse_schema)]
    from: Schema,
    /// Schema of the output; also `sharegpt` (conversations), `messages`, `trl` or `axolotl` (openai)
    #[arg(long, value_name = "SCHEMA", value_parser = parse_schema)]
    to: Schema,
    /// Output file, which may be the input; for traces a folder, with one file per session, which replace those of an
    /// earlier export
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
}

fn parse_schema(name: &str) -> Result<Schema, String> {
    let known = Schema::ALL.map(Schema::name);
    let closest = || pybench_run::closest(name, known);
    let hint = || {
        closest()
            .map(|best| format!("did you mean {best}? "))
            .unwrap_or_default()
    };
    Schema::named(name).ok_or_else(|| format!("{}expected one of {}", hint(), known.join(", ")))
}

/// What is written. It replaces an earlier output when it is complete.
enum Output {
    File(NewFile),
    /// One file for each session.
    Sessions(NewFolder),
}

impl Output {
    fn new(schema: Schema, path: &Path) -> Result<Self, RunError> {
        let io = || RunError::io(path.display().to_string());
        match schema {
            Schema::Traces => {
                check_replaceable(path)?;
                NewFolder::new(path).map(Self::Sessions).map_err(io())
            }
            _ => NewFile::new(path).map(Self::File).map_err(io()),
        }
    }

    fn finish(self, path: &Path) -> std::io::Result<()> {
        match self {
            Self::File(file) => file.finish(),
            Self::Sessions(folder) => {
                if path.exists() {
                    std::fs::remove_dir_all(path)?;
                }
                folder.finish()
            }
        }
    }
}

fn session_name(number: usize) -> String {
    format!("session-{number:06}.jsonl")
}

/// Check that a folder has no files but those of an earlier export.
fn check_replaceable(folder: &Path) -> Result<(), RunError> {
    if !folder.exists() {
        return Ok(());
    }
    let io = || RunError::io(folder.display().to_string());
    for entry in std::fs::read_dir(folder).map_err(io())? {
        let name = entry.map_err(io())?.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix("session-");
        let number = number.and_then(|rest| rest.strip_suffix(".jsonl"));
        if number.is_none_or(|number| number.parse::<usize>().is_err()) {
            return Err(RunError::BadInput(format!(
                "{} contains {name}, which is no session of an earlier export; choose another folder",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// An output and the number of conversations in it.
struct CountedOutput {
    path: PathBuf,
    output: Output,
    written: usize,
}

/// Writes conversations in a schema, and counts what the schema cannot represent.
struct ExportSink {
    schema: Schema,
    /// One for each split.
    outputs: BTreeMap<String, CountedOutput>,
    /// Whether user messages that follow each other are merged.
    merge: bool,
    scrubber: Scrubber,
    lost: BTreeMap<String, usize>,
    scrubbed: SecretCounts,
}

/// Name of the only output if there are no splits.
const NO_SPLIT: &str = "";

impl ExportSink {
    /// Creates the outputs, which are given with the names of their splits.
    fn new(schema: Schema, paths: BTreeMap<String, PathBuf>) -> Result<Self, RunError> {
        let outputs = paths.into_iter().map(|(split, path)| {
            let output = CountedOutput {
                output: Output::new(schema, &path)?,
                path,
                written: 0,
            };
            Ok((split, output))
        });
        Ok(Self {
            schema,
            outputs: outputs.collect::<Result<_, RunError>>()?,
            merge: false,
            scrubber: Scrubber::of_machine(),
            lost: BTreeMap::new(),
            scrubbed: SecretCounts::default(),
        })
    }

    fn written(&self) -> usize {
        self.outputs.values().map(|output| output.written).sum()
    }

    fn write(&mut self, split: &str, conversation: &Conversation) -> Result<(), RunError> {
        let (mut fitted, lost) = self.schema.fit(conversation);
        if self.merge {
            fitted.merge_user_messages();
        }
        let (mut rows, _) = self.schema.write(&fitted);
        for row in &mut rows {
            self.scrub(row);
        }
        self.count_lost(lost);
        let mut text = String::new();
        for row in &rows {
            let _ = writeln!(text, "{}", serde_json::to_string(row)?);
        }
        let missing = || RunError::BadInput(format!("the dataset changed: split {split} is new"));
        let out = self.outputs.get_mut(split).ok_or_else(missing)?;
        out.written += 1;
        let written = match &mut out.output {
            Output::File(file) => file.write_all(text.as_bytes()),
            Output::Sessions(folder) => {
                std::fs::write(folder.path().join(session_name(out.written)), text)
            }
        };
        written.map_err(RunError::io(out.path.display().to_string()))
    }

    fn count_lost(&mut self, lost: LostFields) {
        for name in lost {
            *self.lost.entry(name).or_default() += 1;
        }
    }

    /// Scrub all strings before they are written.
    fn scrub(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let clean = self.scrubber.text(text);
                if clean.found.total() > 0 {
                    self.scrubbed.merge(&clean.found);
                    *text = clean.text;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.scrub(item)),
            _ => {}
        }
    }

    /// Completes the outputs; returns their paths and counts, and what was lost.
    fn finish(self) -> Result<String, RunError> {
        let mut text = String::new();
        let mut outputs: Vec<_> = self.outputs.into_iter().collect();
        outputs.sort_by_key(|(split, _)| split != "train");
        for (_, out) in outputs {
            let CountedOutput {
                path,
                output,
                written,
            } = out;
            let finished = output.finish(&path);
            finished.map_err(RunError::io(path.display().to_string()))?;
            let (schema, path) = (self.schema.name(), path.display());
            let _ = writeln!(text, "{written:>8}  conversations as {schema} in {path}");
        }
        for (name, count) in &self.lost {
            let _ = writeln!(text, "{count:>8}  lost {name}");
        }
        if self.scrubbed.total() > 0 {
            let _ = writeln!(text, "{:>8}  secrets removed", self.scrubbed.total());
        }
        Ok(text)
    }
}

pub(super) fn export(args: &ExportArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    let calls = !args.plain
        && matches!(
            args.to,
            Schema::Openai | Schema::Traces | Schema::JupyterAgent | Schema::Conversations
        );
    let mut sink = ExportSink::new(args.to, export_paths(args, &from)?)?;
    sink.merge = !args.keep_user_messages;
    for row in read::dataset(&from).map_err(to_run_error)? {
        let (split, row) = row.map_err(to_run_error)?;
        if args.split.as_ref().is_some_and(|wanted| *wanted != split) {
            continue;
        }
        if args.rows.is_some_and(|most| sink.written() >= most) {
            break;
        }
        sink.write(&split, &of_row(&row, calls))?;
    }
    sink.finish()
}

/// The output of each split to export. If there are several, their names are part of the file names.
fn export_paths(args: &ExportArgs, dataset: &Path) -> Result<BTreeMap<String, PathBuf>, RunError> {
    let shards = read::shards(dataset).map_err(to_run_error)?;
    let mut splits: BTreeSet<String> = shards.into_iter().map(|shard| shard.split).collect();
    if let Some(wanted) = &args.split {
        if !splits.contains(wanted) {
            let names = splits.into_iter().collect::<Vec<_>>().join(", ");
            return Err(RunError::BadInput(format!(
                "the dataset has no split {wanted}; it has {names}"
            )));
        }
        splits.retain(|split| split == wanted);
    }
    let several = splits.len() > 1;
    let path = |split: &str| match several {
        true => split_path(&args.out, split),
        false => args.out.clone(),
    };
    let paths = splits.iter().map(|split| (split.clone(), path(split)));
    Ok(paths.collect())
}

/// `rows.jsonl` for the split `train` is `rows-train.jsonl`.
fn split_path(path: &Path, split: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{split}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{split}"),
    };
    path.with_file_name(name)
}

pub(super) fn convert(args: &ConvertArgs) -> Result<String, RunError> {
    let shown = args.file.display();
    let file = File::open(&args.file).map_err(RunError::io(shown.to_string()))?;
    let mut file = BufReader::new(file);
    let paths = BTreeMap::from([(NO_SPLIT.to_owned(), args.out.clone())]);
    let mut sink = ExportSink::new(args.to, paths)?;
    let mut traces = TraceReader::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let read = (&mut file)
            .take(MAX_LINE_BYTES + 1)
            .read_until(b'\n', &mut line);
        if read.map_err(RunError::io(shown.to_string()))? == 0 {
            break;
        }
        let bad = |what: String| RunError::BadInput(format!("{shown}:{number}: {what}"));
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(bad(format!(
                "the line is longer than {MAX_LINE_BYTES} bytes"
            )));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row: Value = serde_json::from_slice(&line).map_err(|error| bad(error.to_string()))?;
        sink.count_lost(args.from.unread(&row));
        let found = match args.from {
            Schema::Traces => traces.line(&row),
            other => other.read(&row).map(Some),
        };
        if let Some(conversation) = found.map_err(|error| bad(error.to_string()))? {
            sink.write(NO_SPLIT, &conversation)?;
        }
    }
    if let Some(conversation) = traces.finish() {
        sink.write(NO_SPLIT, &conversation)?;
    }
    sink.finish()
}
