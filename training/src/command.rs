//! The command line of `pybench-train`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::data::{Renderer, Source, preflight, read};
use crate::model::load_config;
use crate::probe::probe;
use crate::train::{Options, run};
use crate::{catalogue, gguf, serve};

/// Trains Llama-family models on conversations.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do what a recipe says; a stopped run goes on from its last checkpoint.
    Run {
        /// A file, or the name of one in `training/recipes/`.
        #[arg(default_value = "smollm2")]
        recipe: String,
        /// Folder of the run; `data/runs/<name>` otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Print documents, tokens, steps and memory, and stop.
        #[arg(long)]
        dry_run: bool,
        /// Train with so many processes on this machine: one for each GPU. Under torchrun or Slurm
        /// leave it out.
        #[arg(long, default_value_t = 1)]
        processes: usize,
    },
    /// Show conversations as the model will see them, trained tokens in colour.
    Inspect {
        /// A name of the catalogue, or a model directory.
        model: String,
        /// Conversations: a file or a folder.
        data: PathBuf,
        /// How many to show.
        #[arg(long, default_value_t = 1)]
        rows: usize,
    },
    /// Fetch a model of the catalogue and print its directory.
    Model {
        /// Its name.
        name: String,
    },
    /// Print the tokens of conversations as JSON lines, with whether each is trained.
    Tokens {
        /// A name of the catalogue, or a model directory.
        model: String,
        /// Conversations: a file or a folder.
        data: PathBuf,
    },
    /// Write logits, loss and gradients of one text, for comparisons.
    #[command(hide = true)]
    Probe {
        /// A model directory.
        model: PathBuf,
        /// `{"ids": [...], "weights": [...]}`.
        request: PathBuf,
        /// The safetensors file to write.
        answer: PathBuf,
        /// Where the model runs.
        #[arg(long, value_enum, default_value_t = serve::Place::Cpu)]
        device: serve::Place,
        /// What it computes in.
        #[arg(long, value_enum, default_value_t = serve::Dtype::Float32)]
        dtype: serve::Dtype,
    },
    /// Serve a model to OpenAI's clients.
    Serve(serve::Options),
    /// Write a model for other programs.
    Export {
        /// A name of the catalogue, or a model directory.
        model: String,
        /// A file for llama.cpp.
        #[arg(long, required = true)]
        gguf: PathBuf,
        /// How its matrices are stored.
        #[arg(long = "type", value_enum, default_value_t = gguf::Quantisation::F16)]
        kind: gguf::Quantisation,
    },
    /// Turn a GGUF file into a Hugging Face directory (float32).
    Convert {
        /// The file.
        gguf: PathBuf,
        /// The directory to make.
        out: PathBuf,
    },
}

/// Runs the command of this process's arguments. A reader that goes away (`| head`) is no error.
pub fn main() -> Result<()> {
    let closed = |error: &anyhow::Error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    match command() {
        Err(error) if closed(&error) => Ok(()),
        result => result,
    }
}

fn command() -> Result<()> {
    match Cli::parse().command {
        Command::Run {
            recipe,
            out,
            dry_run,
            processes,
        } => {
            let options = Options {
                out,
                dry_run,
                processes,
            };
            run(&recipe_path(&recipe)?, &options)
        }
        Command::Inspect { model, data, rows } => inspect(&model, data, rows),
        Command::Model { name } => {
            println!("{}", catalogue::find(&name)?.display());
            Ok(())
        }
        Command::Tokens { model, data } => tokens(&model, data),
        Command::Probe {
            model,
            request,
            answer,
            device,
            dtype,
        } => probe(&model, &request, &answer, dtype.kind(), device.device()?),
        Command::Serve(options) => serve::serve(&options),
        Command::Export {
            model,
            gguf: file,
            kind,
        } => gguf::export(&catalogue::find(&model)?, &file, kind),
        Command::Convert { gguf: file, out } => gguf::convert(&file, &out),
    }
}

fn recipe_path(recipe: &str) -> Result<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recipes");
    let named = folder.join(format!("{recipe}.toml"));
    match PathBuf::from(recipe) {
        path if path.is_file() => Ok(path),
        _ if named.is_file() => Ok(named),
        _ => bail!("no recipe {recipe}: neither a file nor {}", named.display()),
    }
}

fn tokens(model: &str, path: PathBuf) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let renderer = Renderer::load(&catalogue::find(model)?)?;
    for conversation in read(&Source::at(path))? {
        let rendered = renderer.render(&conversation.messages)?;
        let trained: Vec<bool> = rendered.spans.iter().map(|span| span.trained).collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({"ids": rendered.ids, "trained": trained})
        )?;
    }
    Ok(())
}

const COLOUR: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

fn inspect(model: &str, path: PathBuf, rows: usize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let folder = catalogue::find(model)?;
    let renderer = Renderer::load(&folder)?;
    let conversations = read(&Source::at(path))?;
    let rendered = conversations
        .iter()
        .map(|conversation| renderer.render(&conversation.messages))
        .collect::<Result<Vec<_>, _>>()?;
    for (conversation, rendered) in conversations.iter().zip(&rendered).take(rows) {
        let total = rendered.ids.len();
        writeln!(
            out,
            "{}: {total} tokens, {} trained",
            conversation.place,
            rendered.trained()
        )?;
        // Neighbours of one kind are decoded together: a letter may be several tokens.
        let mut start = 0;
        for end in 1..=total {
            let trained = |place: usize| rendered.spans[place].trained;
            if end == total || trained(end) != trained(start) {
                let text = renderer.tokenizer.decode(&rendered.ids[start..end])?;
                let colour = if trained(start) { COLOUR } else { PLAIN };
                write!(out, "{colour}{text}{PLAIN}")?;
                start = end;
            }
        }
        writeln!(out)?;
    }
    let vocab = load_config(&folder)?.vocab;
    let found = preflight(&renderer, &conversations, &rendered, vocab, true)?;
    for note in &found.notes {
        writeln!(out, "note: {note}")?;
    }
    match found.stops.first() {
        Some(stop) => bail!("{stop}"),
        None => Ok(()),
    }
}
