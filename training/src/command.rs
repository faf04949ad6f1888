//! The command line of `pybench-train`.

mod exit_code;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};
use pybench_training_data::{Renderer, Source, preflight, read};

use crate::exit::{self, ExitCode, bad_input, usage};
use crate::model::{is_adapter, load_config};
use crate::probe::{losses, probe};
use crate::train::{PlanOptions, RunOptions, check, merge, run};
use crate::{catalog, gguf, serve};

/// Fine-tunes, serves and converts Llama-family models.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 success, 1 internal error, 2 usage, 3 bad input, 4 environment, 5 endpoint, \
                  7 incomplete, 8 conflict, 130 interrupted (docs/exit-codes.md)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model as a recipe says; an interrupted run resumes from its last checkpoint
    Run {
        /// A recipe file, or the name of one in training/recipes
        #[arg(default_value = "smollm2")]
        recipe: String,
        /// Run folder [default: data/runs/<name of the recipe>]
        #[arg(long)]
        out: Option<PathBuf>,
        /// Print tokens, steps, predicted memory, disk space and time, and stop
        #[arg(long)]
        dry_run: bool,
        /// Number of processes on this machine, one per GPU; leave it out under torchrun or Slurm
        #[arg(long, default_value_t = 1)]
        processes: usize,
        #[command(flatten)]
        plan: PlanOptions,
    },
    /// Check the keys and values of a recipe, without its model and data
    Check {
        /// A recipe file, or the name of one in training/recipes
        recipe: String,
        /// Number of processes that will train
        #[arg(long, default_value_t = 1)]
        processes: usize,
    },
    /// Show conversations as the model sees them, with trained tokens in color, and check the data
    Inspect {
        /// A name of the catalog, a model directory, or owner/name on the Hub
        model: String,
        /// A file or folder of conversations
        data: PathBuf,
        /// Number of conversations to show
        #[arg(long, default_value_t = 1)]
        rows: usize,
    },
    /// Download a model and print its directory
    Model {
        /// A name of the catalog, or owner/name on the Hub
        name: String,
    },
    /// Print token ids and loss mask of conversations as JSON lines
    Tokens {
        /// A name of the catalog, a model directory, or owner/name on the Hub
        model: String,
        /// A file or folder of conversations
        data: PathBuf,
    },
    /// Write logits, loss and gradients of one text, for comparisons
    #[command(hide = true)]
    Probe {
        /// A model directory
        model: PathBuf,
        /// A JSON file: {"ids": [...], "weights": [...]}
        request: PathBuf,
        /// The safetensors file to write
        answer: PathBuf,
        /// Device of the model
        #[arg(long, value_enum, default_value_t = serve::DeviceChoice::Cpu)]
        device: serve::DeviceChoice,
        /// Data type of weights and computation
        #[arg(long, value_enum, default_value_t = serve::Dtype::Float32)]
        dtype: serve::Dtype,
    },
    /// Print the loss of each conversation as JSON lines, for comparisons
    #[command(hide = true)]
    Losses {
        /// A model directory
        model: PathBuf,
        /// A file or folder of conversations
        data: PathBuf,
        /// Device of the model
        #[arg(long, value_enum, default_value_t = serve::DeviceChoice::Cpu)]
        device: serve::DeviceChoice,
        /// Data type of weights and computation
        #[arg(long, value_enum, default_value_t = serve::Dtype::Float32)]
        dtype: serve::Dtype,
    },
    /// Merge an adapter, of ours or of PEFT, into its base model
    Merge {
        /// The directory of the adapter, or an address (s3://, gs://, az://, hf://)
        adapter: PathBuf,
        /// The model directory to create [default: `model` beside the folder `adapter` of a run]
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Serve a model over OpenAI's HTTP API
    Serve(serve::ServeOptions),
    /// Export a model to GGUF for llama.cpp
    Export {
        /// A name of the catalog, a model directory, or owner/name on the Hub
        model: String,
        /// The file to write
        #[arg(long, required = true)]
        gguf: PathBuf,
        /// Data type of the matrices
        #[arg(long = "type", value_enum, default_value_t = gguf::GgufType::F16)]
        matrix_type: gguf::GgufType,
    },
    /// Convert a GGUF file to a Hugging Face directory (float32)
    Convert {
        /// The GGUF file
        gguf: PathBuf,
        /// The directory to create
        out: PathBuf,
    },
}

/// Runs the command of this process's arguments and reports errors on standard error.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Commands that only read files report an error without a known cause as bad input.
    let default = match command {
        Command::Run { .. } | Command::Serve(_) => ExitCode::Internal,
        _ => ExitCode::BadInput,
    };
    // tch panics where libtorch throws. The panic hook has printed the message.
    let result = match catch_unwind(AssertUnwindSafe(|| execute(command))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            return exit::of_torch(text.unwrap_or_default());
        }
    };
    let Err(error) = result else {
        return ExitCode::Success;
    };
    let code = exit_code::of(&error, default);
    if code != ExitCode::Success {
        eprintln!("error: {error:#}");
    }
    code
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Run {
            recipe,
            out,
            dry_run,
            processes,
            plan,
        } => {
            let options = RunOptions {
                out,
                dry_run,
                processes,
                plan,
            };
            run(&recipe_path(&recipe)?, &options)
        }
        Command::Check { recipe, processes } => check(&recipe_path(&recipe)?, processes),
        Command::Inspect { model, data, rows } => inspect(&model, data, rows),
        Command::Model { name } => {
            println!("{}", catalog::find(&name)?.display());
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
        Command::Losses {
            model,
            data,
            device,
            dtype,
        } => losses(
            &model,
            &Source::from_path(data),
            dtype.kind(),
            device.device()?,
        ),
        Command::Merge { adapter, out } => merge(&adapter, &merge_target(&adapter, out)?),
        Command::Serve(options) => serve::serve(&options),
        Command::Export {
            model,
            gguf: file,
            matrix_type,
        } => gguf::export(&catalog::find(&model)?, &file, matrix_type),
        Command::Convert { gguf: file, out } => gguf::convert(&file, &out),
    }
}

/// The folder of a merged model.
fn merge_target(adapter: &Path, out: Option<PathBuf>) -> Result<PathBuf> {
    let of_run = is_adapter(adapter) && adapter.ends_with("adapter");
    let beside = of_run.then(|| adapter.with_file_name("model"));
    out.or(beside)
        .ok_or_else(|| usage("name the folder for the merged model with --out FOLDER"))
}

fn recipe_path(recipe: &str) -> Result<PathBuf> {
    let named = catalog::shipped("recipes").join(format!("{recipe}.toml"));
    match PathBuf::from(recipe) {
        path if path.is_file() => Ok(path),
        _ if named.is_file() => Ok(named),
        _ => Err(bad_input(format!(
            "there is no recipe {recipe}: neither that file nor {} exists",
            named.display()
        ))),
    }
}

fn tokens(model: &str, path: PathBuf) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let renderer = Renderer::load(&catalog::find(model)?)?;
    for conversation in read(&Source::from_path(path))? {
        let rendered = renderer.render(&conversation)?;
        let trained: Vec<bool> = rendered.spans.iter().map(|span| span.trained).collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({"ids": rendered.ids, "trained": trained})
        )?;
    }
    Ok(())
}

const GREEN: &str = "\x1b[32m";
const RESET: &str = "\x1b[0m";

fn inspect(model: &str, path: PathBuf, rows: usize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let folder = catalog::find(model)?;
    let renderer = Renderer::load(&folder)?;
    let conversations = read(&Source::from_path(path))?;
    let rendered = conversations
        .iter()
        .map(|conversation| renderer.render(conversation))
        .collect::<Result<Vec<_>, _>>()?;
    for (conversation, rendered) in conversations.iter().zip(&rendered).take(rows) {
        let total = rendered.ids.len();
        writeln!(
            out,
            "{}: {total} tokens, {} trained",
            conversation.location,
            rendered.trained()
        )?;
        // Runs of tokens are decoded together, because a character may consist of several tokens.
        let mut start = 0;
        for end in 1..=total {
            let trained = |index: usize| rendered.spans[index].trained;
            if end == total || trained(end) != trained(start) {
                let text = renderer.tokenizer.decode(&rendered.ids[start..end])?;
                let color = if trained(start) { GREEN } else { RESET };
                write!(out, "{color}{text}{RESET}")?;
                start = end;
            }
        }
        writeln!(out)?;
    }
    let vocab = load_config(&folder)?.vocab;
    let result = preflight(&renderer, &conversations, &rendered, vocab, true)?;
    for note in &result.notes {
        writeln!(out, "note: {note}")?;
    }
    match result.errors.first() {
        Some(error) => Err(bad_input(error.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_model_lies_beside_the_adapter_of_a_run() {
        let run = tempfile::tempdir().unwrap();
        let [adapter, other] = ["adapter", "mine"].map(|name| run.path().join(name));
        for folder in [&adapter, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("adapter_config.json"), "{}").unwrap();
        }
        let model = run.path().join("model");
        assert_eq!(merge_target(&adapter, None).unwrap(), model);
        let named = merge_target(&adapter, Some("a".into())).unwrap();
        assert_eq!(named, Path::new("a"));
        for folder in [&*other, Path::new("hf://owner/adapter")] {
            let error = merge_target(folder, None).unwrap_err().to_string();
            assert!(error.contains("--out"), "{error}");
        }
    }

    #[test]
    fn a_recipe_is_checked_for_a_number_of_processes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.toml");
        let text = "name='a'\nmodel='none'\n[[data]]\npath='none'\n[train]\nmax_seq_len=8\nmax_steps=1\n\
                    batch_size=2\n[optimizer]\noptimizer_in_bwd=true\nmax_grad_norm=0\n";
        std::fs::write(&path, text).unwrap();
        assert!(check(&path, 2).is_ok());
        let error = check(&path, 1).unwrap_err().to_string();
        assert!(error.contains("train.batch_size = 1"), "{error}");
        std::fs::write(&path, text.replace("max_steps", "stepz")).unwrap();
        assert!(check(&path, 2).is_err());
    }
}
