//! `pybench-embedded MODEL [--context N] [--slots N] [--threads N]`: answers requests from standard input.

use std::io::{BufRead, Read, StdoutLock, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Context as _, Result, bail};
use pybench_embedded::engine::{LoadedModel, Options};
use pybench_embedded::reply_stream::Listener;
use pybench_embedded::{Answer, Ask, MAX_LINE_BYTES, STOP_LINE};

fn main() -> Result<()> {
    let (model, options) = arguments(std::env::args().skip(1))?;
    let loaded = LoadedModel::open(&model)?;
    let mut engine = loaded.engine(&options)?;
    let mut client = Client {
        out: std::io::stdout().lock(),
        lines: lines(),
        is_gone: false,
    };
    write_line(&mut client.out, &engine.hello())?;
    while let Ok(line) = client.lines.recv() {
        // The request that is withdrawn was answered already.
        if line == STOP_LINE {
            continue;
        }
        let answer = match serde_json::from_slice::<Ask>(&line) {
            Ok(ask) => engine.answer(&ask, &mut client),
            Err(error) => Answer::Refused(format!("invalid request: {error}")),
        };
        write_line(&mut client.out, &answer)?;
    }
    Ok(())
}

/// The process that asks.
struct Client {
    out: StdoutLock<'static>,
    lines: Receiver<Vec<u8>>,
    /// Whether nobody reads the output any more.
    is_gone: bool,
}

impl Listener for Client {
    fn text(&mut self, piece: &str) {
        let written = write_line(&mut self.out, &Answer::Text(piece.to_owned()));
        self.is_gone |= written.is_err();
    }

    fn is_stopped(&mut self) -> bool {
        // While a request is answered, no line but the one that withdraws it comes.
        self.is_gone || self.lines.try_recv().is_ok()
    }
}

/// The lines of standard input, until its end.
fn lines() -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = (&mut input)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line);
            // An incomplete line means that the parent has died.
            if read.is_err() || line.pop() != Some(b'\n') || sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn write_line(out: &mut impl Write, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<(PathBuf, Options)> {
    let model = given
        .next()
        .context("usage: pybench-embedded MODEL.gguf [--context N] [--slots N] [--threads N]")?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut options = Options {
        context: None,
        slots: 2,
        threads,
    };
    while let Some(name) = given.next() {
        let value = given
            .next()
            .with_context(|| format!("{name}: expected a number"))?;
        let value: u32 = value.parse().with_context(|| format!("{name} {value}"))?;
        match name.as_str() {
            "--context" => options.context = Some(value),
            "--slots" => options.slots = value,
            "--threads" => options.threads = value,
            _ => bail!("unknown option {name}; the options are --context, --slots and --threads"),
        }
    }
    Ok((PathBuf::from(model), options))
}
