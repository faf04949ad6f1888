//! `pybench-embedded MODEL [--context N] [--slots N] [--threads N]`: answers requests from standard input.

use std::io::{BufRead, Read, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use pybench_embedded::engine::{LoadedModel, Options};
use pybench_embedded::{Answer, Ask, MAX_LINE_BYTES};

fn main() -> Result<()> {
    let (model, options) = arguments(std::env::args().skip(1))?;
    let loaded = LoadedModel::open(&model)?;
    let mut engine = loaded.engine(&options)?;
    let mut out = std::io::stdout().lock();
    write_line(&mut out, &engine.hello())?;
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        (&mut input)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        // An incomplete line means that the parent has died.
        if line.pop() != Some(b'\n') {
            return Ok(());
        }
        let answer = match serde_json::from_slice::<Ask>(&line) {
            Ok(ask) => engine.answer(&ask),
            Err(error) => Answer::Refused(format!("invalid request: {error}")),
        };
        write_line(&mut out, &answer)?;
    }
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
