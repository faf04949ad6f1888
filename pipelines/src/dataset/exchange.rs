//! Datasets in other schemas.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use pybench_datasets::exchange::{Conversation, Lost, Schema, TraceReader, of_row};
use pybench_datasets::read;
use pybench_datasets::scrub::{Found, Scrubber};
use serde_json::Value;

use super::{FromArgs, bad};

/// Longest line.
const LINE: u64 = 64 << 20;

/// Write a dataset in another schema, as JSON lines.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    from: FromArgs,
    /// Schema: pyinstruct, code-act, code-feedback, ultrachat, jupyter-agent, upstream, conversations,
    /// openai or traces
    #[arg(long, value_name = "SCHEMA", value_parser = schema)]
    to: Schema,
    /// File to write; for traces a folder with a file for each session
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Only this split
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    /// Most rows
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Leave cells as text where the schema has calls of tools
    #[arg(long)]
    plain: bool,
}

/// Read JSON lines of one schema, and write them in another.
#[derive(Clone, Debug, clap::Args)]
pub struct ConvertArgs {
    /// File of JSON lines
    file: PathBuf,
    /// Its schema
    #[arg(long, value_name = "SCHEMA", value_parser = schema)]
    from: Schema,
    /// The schema to write
    #[arg(long, value_name = "SCHEMA", value_parser = schema)]
    to: Schema,
    /// File to write; for traces a folder with a file for each session
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
}

fn schema(name: &str) -> Result<Schema, String> {
    let known = Schema::ALL.map(Schema::name);
    let closest = || pybench::run::closest(name, known);
    let hint = || {
        closest()
            .map(|best| format!("did you mean {best}? "))
            .unwrap_or_default()
    };
    Schema::named(name).ok_or_else(|| format!("{}known are {}", hint(), known.join(", ")))
}

/// Writes conversations of one schema, and counts what it could not say.
struct Outlet {
    schema: Schema,
    path: PathBuf,
    file: Option<BufWriter<File>>,
    scrubber: Scrubber,
    written: usize,
    lost: BTreeMap<&'static str, usize>,
    scrubbed: Found,
}

impl Outlet {
    fn new(schema: Schema, path: &Path) -> Result<Self, RunError> {
        let io = || RunError::io(path.display().to_string());
        let file = match schema {
            Schema::Traces => {
                std::fs::create_dir_all(path).map_err(io())?;
                None
            }
            _ => Some(BufWriter::new(File::create(path).map_err(io())?)),
        };
        Ok(Self {
            schema,
            path: path.to_owned(),
            file,
            scrubber: Scrubber::of_machine(),
            written: 0,
            lost: BTreeMap::new(),
            scrubbed: Found::default(),
        })
    }

    fn write(&mut self, conversation: &Conversation) -> Result<(), RunError> {
        let (mut rows, lost): (Vec<Value>, Lost) = self.schema.write(conversation);
        for row in &mut rows {
            self.scrub(row);
        }
        for name in lost {
            *self.lost.entry(name).or_default() += 1;
        }
        self.written += 1;
        let mut text = String::new();
        for row in &rows {
            let _ = writeln!(text, "{}", serde_json::to_string(row)?);
        }
        let io = || RunError::io(self.path.display().to_string());
        match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).map_err(io()),
            None => {
                let name = format!("session-{:06}.jsonl", self.written);
                std::fs::write(self.path.join(name), text).map_err(io())
            }
        }
    }

    /// Nothing leaves with a secret in it.
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

    fn finish(mut self) -> Result<String, RunError> {
        if let Some(file) = &mut self.file {
            file.flush()
                .map_err(RunError::io(self.path.display().to_string()))?;
        }
        let mut text = format!("{} conversations as {}\n", self.written, self.schema.name());
        for (name, count) in &self.lost {
            let _ = writeln!(text, "{count:>8}  without {name}");
        }
        if self.scrubbed.total() > 0 {
            let _ = writeln!(text, "{:>8}  secrets taken out", self.scrubbed.total());
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
    let mut outlet = Outlet::new(args.to, &args.out)?;
    for row in read::dataset(&from).map_err(bad)? {
        let (split, row) = row.map_err(bad)?;
        if args.split.as_ref().is_some_and(|wanted| *wanted != split) {
            continue;
        }
        if args.rows.is_some_and(|most| outlet.written >= most) {
            break;
        }
        outlet.write(&of_row(&row, calls))?;
    }
    outlet.finish()
}

pub(super) fn convert(args: &ConvertArgs) -> Result<String, RunError> {
    let shown = args.file.display();
    let file = File::open(&args.file).map_err(RunError::io(shown.to_string()))?;
    let mut file = BufReader::new(file);
    let mut outlet = Outlet::new(args.to, &args.out)?;
    let mut traces = TraceReader::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        let read = (&mut file).take(LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(RunError::io(shown.to_string()))? == 0 {
            break;
        }
        let bad = |what: String| RunError::BadInput(format!("{shown}:{number}: {what}"));
        if line.len() as u64 > LINE {
            return Err(bad(format!("a line longer than {LINE} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let row: Value = serde_json::from_slice(&line).map_err(|error| bad(error.to_string()))?;
        let found = match args.from {
            Schema::Traces => traces.line(&row),
            other => other.read(&row).map(Some),
        };
        if let Some(conversation) = found.map_err(|error| bad(error.to_string()))? {
            outlet.write(&conversation)?;
        }
    }
    if let Some(conversation) = traces.finish() {
        outlet.write(&conversation)?;
    }
    outlet.finish()
}
