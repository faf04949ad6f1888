//! Logs on stderr: text or JSON, never through a progress bar, never with secrets of libraries
//! (their debug output stays off).

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

use super::Progress;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Install logging for the process. A second call changes nothing.
pub fn install(verbosity: u8, format: LogFormat, progress: &Progress) {
    let builder = fmt()
        .with_env_filter(EnvFilter::new(filter(verbosity)))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(Stderr(progress.clone()));
    // An error says that a logger is there already, as in a program that embeds us.
    let _ = match format {
        LogFormat::Text => builder
            .compact()
            .without_time()
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Ours by `-v` and `-vv`; of libraries nothing unless asked for: their warnings speak of broken input
/// that the report names, and their debug output may show headers.
fn filter(verbosity: u8) -> &'static str {
    match verbosity {
        0 => "off,pybench=info",
        1 => "error,pybench=debug",
        _ => "warn,pybench=trace",
    }
}

/// Write to stderr; that nobody reads it any more is no reason to stop.
pub(super) fn say(line: &[u8]) {
    let _ = io::stderr().write_all(line);
}

#[derive(Clone, Debug)]
struct Stderr(Progress);

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| say(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
