//! An OpenAI-compatible server of one model, on the trainer's own forward pass with a cache of keys
//! and values.
//!
//! One thread ([`engine`]) owns the model and computes all running replies together; requests reach
//! it through a bounded queue. A prompt that begins like one seen before goes on from there.

mod engine;
mod error;
mod http;
mod prompt;
mod reply;
mod request;
mod sampler;
mod slots;
mod text;
mod vllm;
mod vocabulary;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use tch::{Device, Kind};

pub use sampler::Sampling;
pub use vocabulary::{Vocabulary, VocabularyError};

use crate::catalogue;
use crate::data::Renderer;
use crate::model::{Model, ModelConfig, Weights, load_config};
use engine::Engine;
use http::Server;
use prompt::ChatPrompt;

/// How a model is served.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A name of the catalogue, or a model directory.
    model: String,
    /// A base model: completions only, whatever chat template there is.
    #[arg(long)]
    base: bool,
    /// A chat template (Jinja) instead of the model's own.
    #[arg(long, conflicts_with = "base")]
    chat_template: Option<PathBuf>,
    /// What clients call the model; the folder's name otherwise.
    #[arg(long)]
    name: Option<String>,
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port; 0 takes a free one, which is printed.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Replies that run together.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,
    /// Replies that may wait; more are refused.
    #[arg(long, default_value_t = 64)]
    queue: u16,
    /// Most tokens of prompt and reply; the model's own otherwise.
    #[arg(long)]
    context: Option<usize>,
    /// What computes: this program, vLLM, or vLLM where it is installed.
    #[arg(long, value_enum, default_value_t = Program::Own)]
    engine: Program,
    /// Where the model runs.
    #[arg(long, value_enum, default_value_t = Place::Auto)]
    device: Place,
    /// Numbers of weights and cache; float32 on a CPU and bf16 on a GPU otherwise.
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// A key that clients must send.
    #[arg(long, env = "PYBENCH_SERVE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Only say whether the model could be served: all its files are there (a name of the catalogue is
    /// fetched) and fit together. Weights are not read.
    #[arg(long)]
    check: bool,
}

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Place {
    Auto,
    Cpu,
    Cuda,
}

impl Place {
    /// The device, if this machine has it.
    pub fn device(self) -> Result<Device> {
        match (self, tch::Cuda::is_available()) {
            (Self::Cpu, _) | (Self::Auto, false) => Ok(Device::Cpu),
            (_, true) => Ok(Device::Cuda(0)),
            (Self::Cuda, false) => bail!("--device cuda: libtorch finds no CUDA here"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Program {
    Own,
    Vllm,
    Auto,
}

/// What a model computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Dtype {
    Float32,
    Bfloat16,
    Float16,
}

impl Dtype {
    /// As libtorch calls it.
    pub fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Bfloat16 => Kind::BFloat16,
            Self::Float16 => Kind::Half,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
        }
    }
}

/// Loads the model and serves it until the process is told to end; with `--check` it is only looked at.
pub fn serve(options: &Options) -> Result<()> {
    match (options.engine, vllm::installed()) {
        (Program::Vllm, None) => bail!("--engine vllm: there is no vllm on the path"),
        (Program::Vllm | Program::Auto, Some(program)) => under_vllm(options, &program),
        (Program::Own, _) | (Program::Auto, None) if options.check => look(options).map(drop),
        (Program::Own, _) | (Program::Auto, None) => serve_ourselves(options),
    }
}

fn under_vllm(options: &Options, program: &Path) -> Result<()> {
    let folder = catalogue::find(&options.model)?;
    // A template that does not compile is found out here and not in a traceback.
    if let Some(path) = &options.chat_template {
        Renderer::load_with(&folder, Some(path))?;
    }
    let launch = vllm::Launch {
        name: &name(options, &folder),
        host: options.host.to_string(),
        port: options.port,
        slots: options.slots,
        context: context(options, &load_config(&folder)?)?,
        template: options.chat_template.as_deref(),
        dtype: options.dtype.map(Dtype::name),
        folder: &folder,
    };
    match options.check {
        true => Ok(()),
        false => launch.run(program, options.key.as_deref()),
    }
}

fn serve_ourselves(options: &Options) -> Result<()> {
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
            "{}: context {} tokens, {} replies at once, at most {mib} MiB of cache",
            server.name, server.context, options.slots
        );
        println!("http://{}/v1", listener.local_addr()?);
        let end = async { drop(tokio::signal::ctrl_c().await) };
        let app = http::router(Arc::new(server));
        axum::serve(listener, app)
            .with_graceful_shutdown(end)
            .await?;
        Ok(())
    })
}

/// A model directory whose files fit together.
struct Found {
    folder: PathBuf,
    vocabulary: Arc<Vocabulary>,
    chat: Option<ChatPrompt>,
    context: usize,
}

/// Everything that can be known of a model before its weights are read.
fn look(options: &Options) -> Result<Found> {
    let folder = catalogue::find(&options.model)?;
    let vocabulary = Arc::new(Vocabulary::load(&folder)?);
    let chat = match options.base {
        true => None,
        false => Some(chat_prompt(&folder, options, &vocabulary)?),
    };
    let config = load_config(&folder)?;
    if vocabulary.size() as i64 > config.vocab {
        bail!(
            "the tokenizer has {} tokens and the embedding {} rows: they are of different models",
            vocabulary.size(),
            config.vocab
        );
    }
    Weights::open(&folder)?;
    let context = context(options, &config)?;
    Ok(Found {
        folder,
        vocabulary,
        chat,
        context,
    })
}

/// The server, and bytes of cache that one full context takes.
fn load(options: &Options) -> Result<(Server, usize)> {
    let found = look(options)?;
    let device = options.device.device()?;
    let kind = match (options.dtype, device) {
        (Some(dtype), _) => dtype.kind(),
        (None, Device::Cpu) => Kind::Float,
        (None, _) => Kind::BFloat16,
    };
    let model = Model::load(&found.folder, kind, device)?;
    let rows = model.config.vocab;
    let bytes = bytes_per_token(&model.config, kind) * found.context;
    let mut ends = found.vocabulary.ends.clone();
    ends.extend(found.chat.as_ref().and_then(ChatPrompt::end_of_turn));
    let (slots, queue) = (options.slots.into(), options.queue.into());
    let server = Server {
        name: name(options, &found.folder),
        created: reply::seconds(),
        engine: Engine::start(model, found.vocabulary.clone(), slots, queue)?,
        vocabulary: found.vocabulary,
        chat: found.chat,
        ends: Arc::new(ends),
        rows,
        context: found.context,
        key: options.key.clone().filter(|key| !key.is_empty()),
        requests: AtomicU64::new(0),
    };
    Ok((server, bytes))
}

fn chat_prompt(
    folder: &Path,
    options: &Options,
    vocabulary: &Arc<Vocabulary>,
) -> Result<ChatPrompt> {
    let renderer = match &options.chat_template {
        None => Renderer::load(folder)
            .context("--base serves a model without a chat template, --chat-template gives one")?,
        Some(path) => Renderer::load_with(folder, Some(path))?,
    };
    Ok(ChatPrompt::new(renderer, vocabulary.clone()))
}

fn context(options: &Options, config: &ModelConfig) -> Result<usize> {
    let own = config.context as usize;
    match options.context {
        None => Ok(own),
        Some(wanted) if (2..=own).contains(&wanted) => Ok(wanted),
        Some(wanted) => bail!("--context {wanted}: the model has been made for 2 to {own} tokens"),
    }
}

fn name(options: &Options, folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let own = || {
        folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let asked = options.name.clone().or_else(|| {
        // A name of the catalogue is what the user knows it by.
        (!Path::new(&options.model).exists()).then(|| options.model.clone())
    });
    asked.or_else(own).unwrap_or_else(|| "model".into())
}

fn bytes_per_token(config: &ModelConfig, kind: Kind) -> usize {
    let keys = (config.kv_heads * config.head_dim) as usize;
    2 * config.layers * keys * kind.elt_size_in_bytes()
}
