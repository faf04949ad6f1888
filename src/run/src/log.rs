//! Logs on stderr, as text or JSON. Log lines do not tear progress bars, and the debug output of libraries,
//! which may contain secrets, is off.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

use super::Progress;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Installs logging for the process. A second call has no effect.
pub fn install(verbosity: u8, format: LogFormat, progress: &Progress) {
    let builder = fmt()
        .with_env_filter(EnvFilter::new(filter(verbosity)))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(Stderr(progress.clone()));
    // An error means that a logger is already installed, as in a program that embeds pybench.
    let _ = match format {
        LogFormat::Text => builder
            .compact()
            .without_time()
            .with_target(false)
            .try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Our level follows `-v` and `-vv`. Libraries are silent by default: their warnings concern broken input
/// files that the report lists anyway, and their debug output may show headers.
fn filter(verbosity: u8) -> &'static str {
    match verbosity {
        0 => "off,pybench=info",
        1 => "error,pybench=debug",
        _ => "warn,pybench=trace",
    }
}

/// Writes to stderr and ignores errors, such as a closed pipe.
pub(super) fn write_stderr(line: &[u8]) {
    let _ = io::stderr().write_all(line);
}

#[derive(Clone, Debug)]
struct Stderr(Progress);

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| write_stderr(line));
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
