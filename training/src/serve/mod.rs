//! An OpenAI-compatible server of one model.
//!
//! One thread ([`engine`]) owns the model and computes all active replies together: on a CPU with
//! `pybench-inference`, on a GPU with the forward pass of the trainer ([`decoder`]). Requests reach it through a
//! bounded queue. Prompts reuse the cached prefix of earlier ones.

mod decoder;
mod dtype;
mod engine;
mod error;
mod http;
mod prompt;
mod repetition;
mod reply;
mod request;
mod required_text;
mod slots;
mod text;
mod tools;
mod vllm;
mod vocabulary;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use pybench_training_data::{CallSyntax, PYTHON_TAG, Renderer};
use tch::Device;

pub use dtype::Dtype;
pub use vocabulary::{Vocabulary, VocabularyError};

use crate::catalog::{self, ModelFiles};
use crate::dependent_process::free_port;
use crate::exit::{bad_input, environment, interrupted, usage};
use crate::interrupt::{self, Deferral};
use crate::model::{Model, ModelConfig, Weights, load_config, load_inference};
use crate::torch::release_free_memory;
use decoder::TorchDecoder;
use dtype::ServedDtype;
use engine::{Engine, EngineLimits};
use http::Server;
use prompt::ChatPrompt;
use vllm::VllmCommand;

#[derive(Clone, Debug, Args)]
pub struct ServeOptions {
    /// A name of the catalog, a model directory, or owner/name on the Hub
    model: String,
    /// Serve as a base model: completions only, even if there is a chat template
    #[arg(long)]
    base: bool,
    /// A chat template (Jinja) that replaces that of the model: a file, or the name of one in training/recipes/templates
    #[arg(long, conflicts_with = "base")]
    chat_template: Option<PathBuf>,
    /// Name of the model in the API [default: name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port; 0 chooses a free one. The address is printed
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Replies that are generated at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,
    /// Replies that may wait; further requests get status 429
    #[arg(long, default_value_t = 64)]
    queue: u16,
    /// Maximum tokens of prompt and reply [default: that of the model]
    #[arg(long)]
    context: Option<usize>,
    /// own: this program; vllm: vLLM; auto: vLLM if it is installed
    #[arg(long, value_enum, default_value_t = Backend::Own)]
    engine: Backend,
    /// Device of the model
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    /// Data type of weights and cache; int8: weights on a CPU [default: float32 on a CPU, bfloat16 on a GPU]
    #[arg(long, value_enum)]
    dtype: Option<ServedDtype>,
    /// API key that clients must send
    #[arg(long, env = "PYBENCH_SERVE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Only check that the files of the model exist and are consistent. Downloads the model if necessary; does not
    /// read the weights
    #[arg(long)]
    check: bool,
}

impl ServeOptions {
    /// The file of the chat template that replaces that of the model.
    ///
    /// # Errors
    /// A template at an address cannot be downloaded.
    fn template(&self) -> Result<Option<PathBuf>> {
        let named = self.chat_template.as_deref();
        named.map(catalog::chat_template).transpose()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceChoice {
    Auto,
    Cpu,
    Cuda,
}

impl DeviceChoice {
    pub fn device(self) -> Result<Device> {
        match (self, tch::Cuda::is_available()) {
            (Self::Cpu, _) | (Self::Auto, false) => Ok(Device::Cpu),
            (_, true) => Ok(Device::Cuda(0)),
            (Self::Cuda, false) => Err(environment(
                "--device cuda: libtorch finds no CUDA on this machine",
            )),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Backend {
    Own,
    Vllm,
    Auto,
}

/// Loads and serves the model until a signal arrives; with `--check` only checks its files and prints which engine would
/// serve it.
pub fn serve(options: &ServeOptions) -> Result<()> {
    let files = catalog::find_files(&options.model)?;
    let program = match options.engine {
        Backend::Own => None,
        Backend::Vllm if files.adapter.is_some() => {
            return Err(usage(
                "vLLM serves merged models only: merge the adapter with `pybench-train merge`, or leave --engine out",
            ));
        }
        Backend::Vllm => Some(
            vllm::installed()
                .ok_or_else(|| environment("--engine vllm: there is no vllm on the PATH"))?,
        ),
        Backend::Auto => {
            let can = files.adapter.is_none() && options.dtype != Some(ServedDtype::Int8);
            vllm::installed().filter(|_| can)
        }
    };
    match (program, options.check) {
        (Some(program), check) => {
            let launch = prepare_vllm(options, &files.folder)?;
            match check {
                true => println!("vllm"),
                false => launch.run(&program, options.key.as_deref())?,
            }
        }
        (None, true) => {
            check_model(options)?;
            println!("own");
        }
        (None, false) => serve_with_own_engine(options)?,
    }
    Ok(())
}

fn prepare_vllm(options: &ServeOptions, folder: &Path) -> Result<VllmCommand> {
    // Reports a broken template here and not in a Python traceback.
    let template = options.template()?;
    let renderer = Renderer::load_with(folder, template.as_deref())?;
    let port = match options.port {
        0 => free_port(options.host)?,
        port => port,
    };
    Ok(VllmCommand {
        name: name(options, folder),
        address: SocketAddr::new(options.host, port),
        slots: options.slots,
        context: context(options, &load_config(folder)?)?,
        template,
        dtype: options.dtype.map(ServedDtype::vllm_name).transpose()?,
        calls: calls_for_vllm(&renderer),
        folder: folder.to_owned(),
    })
}

/// The calls of a template that vLLM can parse; it reads Llama's with a tokenizer that has their tag only.
fn calls_for_vllm(renderer: &Renderer) -> Option<CallSyntax> {
    let has_tag = || renderer.tokenizer.control(PYTHON_TAG).is_some();
    let syntax = renderer.calls.as_ref()?.syntax;
    (syntax != CallSyntax::Json || has_tag()).then_some(syntax)
}

fn serve_with_own_engine(options: &ServeOptions) -> Result<()> {
    let (server, bytes) = load(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = SocketAddr::new(options.host, options.port);
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("listening on {address}"))?;
        let mib = (bytes * usize::from(options.slots)) >> 20;
        eprintln!(
            "serving {}: context {} tokens, {} replies at once, up to {mib} MiB of cache",
            server.name, server.context, options.slots
        );
        println!("http://{}/v1", listener.local_addr()?);
        // The first signal ends the server after the active replies, the second at once.
        let _deferral = Deferral::of(1);
        let end = async {
            while interrupt::received() == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let app = http::router(Arc::new(server));
        axum::serve(listener, app)
            .with_graceful_shutdown(end)
            .await?;
        Err(interrupted("the server was stopped by a signal"))
    })
}

/// A model directory whose files are consistent.
struct CheckedModel {
    files: ModelFiles,
    vocabulary: Arc<Vocabulary>,
    chat: Option<ChatPrompt>,
    context: usize,
}

/// Checks everything that is possible without reading the weights.
fn check_model(options: &ServeOptions) -> Result<CheckedModel> {
    let files = catalog::find_files(&options.model)?;
    let vocabulary = Arc::new(Vocabulary::load(&files.folder)?);
    let chat = match options.base {
        true => None,
        false => Some(chat_prompt(&files.folder, options, &vocabulary)?),
    };
    let config = load_config(&files.weights)?;
    if vocabulary.size() as i64 > config.vocab {
        return Err(bad_input(format!(
            "the tokenizer has {} tokens and the embedding {} rows: they belong to different models",
            vocabulary.size(),
            config.vocab
        )));
    }
    Weights::open(&files.weights)?;
    let context = context(options, &config)?;
    Ok(CheckedModel {
        files,
        vocabulary,
        chat,
        context,
    })
}

/// The server, and the size in bytes of the cache of one full context.
fn load(options: &ServeOptions) -> Result<(Server, usize)> {
    let found = check_model(options)?;
    let device = options.device.device()?;
    let dtype = options.dtype.unwrap_or(ServedDtype::default_on(device));
    let (engine, config) = start_engine(options, &found, dtype, device)?;
    let vocab = config.vocab;
    let bytes = bytes_per_token(&config, dtype) * found.context;
    let mut stop_tokens = found.vocabulary.eos_ids.clone();
    stop_tokens.extend(found.chat.iter().flat_map(ChatPrompt::ends_of_turn));
    let server = Server {
        name: name(options, &found.files.folder),
        created: reply::seconds(),
        engine,
        vocabulary: found.vocabulary,
        chat: found.chat,
        stop_tokens: Arc::new(stop_tokens),
        vocab,
        context: found.context,
        key: options.key.clone().filter(|key| !key.is_empty()),
        requests: AtomicU64::new(0),
    };
    Ok((server, bytes))
}

/// Loads the weights and starts the thread that computes with them.
fn start_engine(
    options: &ServeOptions,
    found: &CheckedModel,
    dtype: ServedDtype,
    device: Device,
) -> Result<(Engine, ModelConfig)> {
    let ModelFiles {
        weights, adapter, ..
    } = &found.files;
    let slots = usize::from(options.slots);
    let limits = EngineLimits {
        slots,
        queue: options.queue.into(),
        cached_tokens: slots * found.context,
    };
    let vocabulary = found.vocabulary.clone();
    if let Some(format) = dtype.format(device)? {
        let model = load_inference(weights, adapter.as_ref(), format)?;
        release_free_memory();
        let engine = Engine::start(model, vocabulary, limits)?;
        return Ok((engine, load_config(weights)?));
    }
    let mut model = Model::load(weights, dtype.loaded_kind(), device)?;
    if let Some(adapter) = adapter {
        adapter.attach(&mut model)?;
        model.merge_adapters();
    }
    let config = model.config.clone();
    let engine = Engine::start(TorchDecoder::new(model), vocabulary, limits)?;
    Ok((engine, config))
}

fn chat_prompt(
    folder: &Path,
    options: &ServeOptions,
    vocabulary: &Arc<Vocabulary>,
) -> Result<ChatPrompt> {
    let renderer = match &options.template()? {
        None => Renderer::load(folder)
            .context("use --base to serve a model without a chat template, or --chat-template to provide one")?,
        Some(path) => Renderer::load_with(folder, Some(path))?,
    };
    Ok(ChatPrompt::new(renderer, vocabulary.clone()))
}

fn context(options: &ServeOptions, config: &ModelConfig) -> Result<usize> {
    let own = config.context as usize;
    match options.context {
        None => Ok(own),
        Some(wanted) if (2..=own).contains(&wanted) => Ok(wanted),
        Some(wanted) => Err(usage(format!(
            "--context {wanted}: the model supports 2 to {own} tokens"
        ))),
    }
}

fn name(options: &ServeOptions, folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let own = || {
        folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let asked = options.name.clone().or_else(|| {
        // The user knows the model by its name in the catalog.
        (!Path::new(&options.model).exists()).then(|| options.model.clone())
    });
    asked.or_else(own).unwrap_or_else(|| "model".into())
}

fn bytes_per_token(config: &ModelConfig, dtype: ServedDtype) -> usize {
    let keys = (config.kv_heads * config.head_dim) as usize;
    2 * config.layers * keys * dtype.cache_kind().elt_size_in_bytes()
}
