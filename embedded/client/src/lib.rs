//! Runs a GGUF model on this machine as a teacher. The program `pybench-embedded` loads the model in a
//! separate process with an empty environment, so it has no access to API keys.

mod catalog;
mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_embedded::{Answer, Ask, Message};
use pybench_hub::fetch_files;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Limits, Metered, Reply, ReplyWatcher};
use pybench_run::Price;
use pybench_run::{BudgetCap, Interrupt, RunError, RunFolder};
use pybench_types::id::Digest;
use pybench_types::trajectory::Usage;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, OwnedMutexGuard};

use process::Process;
use pybench_run::program;

/// The process answers one request after another.
pub const LIMITS: Limits = Limits {
    requests: None,
    tokens: None,
    in_flight: Some(1),
};

/// The helper program; it is installed next to this one.
const PROGRAM: &str = "pybench-embedded";
/// Maximum time for one reply; enough for a large model on a few cores.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1_800);

/// A GGUF model that a recipe names.
#[derive(Clone, Debug)]
pub struct Model {
    /// A name from the catalog, the path of a file relative to `root`, or its address (`s3://`, `gs://`, `az://`, `hf://`).
    pub model: String,
    /// Expected SHA-256 of the file. The catalog pins its own models.
    pub sha256: Option<String>,
    /// Maximum tokens of a conversation.
    pub context: Option<u32>,
    /// Project root.
    pub root: PathBuf,
    /// Cache folder of this machine; models of the catalog are stored there.
    pub cache: PathBuf,
}

impl Model {
    /// Finds or downloads the file and verifies its SHA-256. Returns the path and the SHA-256.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the model is neither in the catalog nor a file, or if its SHA-256 differs
    /// from the pinned one; [`RunError::Environment`] if the download fails.
    pub async fn find(&self) -> Result<(PathBuf, String), RunError> {
        let entry = catalog::find(&self.model)?;
        let path = match &entry {
            Some(entry) => entry.fetch(&self.root, &self.cache).await?,
            None => {
                let copy = fetch_files(Path::new(&self.model), &self.cache).await?;
                copy.unwrap_or_else(|| self.root.join(&self.model))
            }
        };
        let hash = path.clone();
        let found = tokio::task::spawn_blocking(move || pybench_hub::sha256(&hash)).await;
        let found = found.map_err(|error| RunError::Internal(error.to_string()))?;
        let shown = path.display();
        let found = found.map_err(|error| {
            let known = catalog::names().join(", ");
            RunError::BadInput(format!(
                "{shown}: {error}; use the path of a GGUF file or a name from the catalog: {known}"
            ))
        })?;
        let pinned = self.sha256.as_deref();
        let pinned = pinned.or(entry.as_ref().map(|entry| &*entry.sha256));
        match pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(&found)) {
            Some(pinned) => Err(RunError::BadInput(format!(
                "{shown} has SHA-256 {found}, not the pinned {pinned}: download the file again or correct the pin"
            ))),
            None => Ok((path, found)),
        }
    }
}

/// The name of a model in trajectory ids; `None` if it is neither in the catalog nor pinned by `sha256`.
pub fn name(model: &str, sha256: Option<&str>) -> Option<String> {
    let entry = catalog::find(model).ok().flatten();
    let pinned = sha256.or(entry.as_ref().map(|entry| &*entry.sha256))?;
    Some(name_with_digest(model, &pinned.to_ascii_lowercase()))
}

/// Builds the name from the file name and the first digits of the SHA-256.
fn name_with_digest(model: &str, sha256: &str) -> String {
    let file = model.rsplit('/').next().unwrap_or_default();
    let stem = file.strip_suffix(".gguf").unwrap_or(file);
    let digest: String = sha256.chars().take(12).collect();
    format!("gguf:{stem}-{digest}")
}

/// A chat model that answers from a `pybench-embedded` process. It handles one request at a time; the process
/// reuses the computed prefix of each conversation.
pub struct Embedded {
    /// `gguf:<name>-<digest>`. It is part of trajectory ids, so a different file counts as a different
    /// teacher.
    name: String,
    model: Model,
    program: PathBuf,
    reply_timeout: Duration,
    state: Arc<Mutex<ProcessState>>,
}

/// The model file and the running process, if any.
#[derive(Default)]
struct ProcessState {
    /// The file, once it is found and verified.
    path: Option<PathBuf>,
    /// `None` before the first request and after a failed one.
    process: Option<Process>,
}

impl Embedded {
    /// Finds the model and starts the process now, so that problems with either show immediately.
    ///
    /// # Errors
    /// As [`Model::find`]; [`RunError::Environment`] if the program is not built; [`RunError::BadInput`]
    /// with the program's message if it cannot load the model.
    pub async fn open(model: Model) -> Result<Self, RunError> {
        let program = find_program()?;
        let (path, digest) = model.find().await?;
        let process = Process::start(&program, &path, model.context).await;
        let state = ProcessState {
            process: Some(process.map_err(RunError::BadInput)?),
            path: Some(path),
        };
        Ok(Self {
            name: name_with_digest(&model.model, &digest),
            model,
            program,
            reply_timeout: REPLY_TIMEOUT,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// Like [`Embedded::open`], but loads the model on the first request, which reports any problem with
    /// it. The name must be known before, so the model must be pinned.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a file without SHA-256; [`RunError::Environment`] if the program is not
    /// built.
    pub fn pinned(model: Model) -> Result<Self, RunError> {
        let name = name(&model.model, model.sha256.as_deref()).ok_or_else(|| {
            let model = &model.model;
            RunError::BadInput(format!(
                "`{model}` is not in the catalog ({}): set `sha256` to the digest of the file (`sha256sum {model}`)",
                catalog::names().join(", ")
            ))
        })?;
        Ok(Self {
            name,
            model,
            program: find_program()?,
            reply_timeout: REPLY_TIMEOUT,
            state: Arc::default(),
        })
    }

    /// Starts a process and loads the model.
    async fn start(&self, state: &mut ProcessState) -> Result<Process, ChatError> {
        let path = match &state.path {
            Some(path) => path.clone(),
            None => {
                let found = self.model.find().await;
                let found = found.map_err(|error| ChatError::Rejected(error.to_string()))?;
                state.path.insert(found.0).clone()
            }
        };
        let process = Process::start(&self.program, &path, self.model.context).await;
        process.map_err(ChatError::Connection)
    }

    /// Asks the process. If this future is dropped (timeout, Ctrl-C, the stop of a conversation), the reply ends, and the
    /// process waits for the next request.
    async fn ask(
        &self,
        request: &ChatRequest<'_>,
        watcher: Option<&ReplyWatcher>,
    ) -> Result<Reply, ChatError> {
        let mut state = self.state.clone().lock_owned().await;
        let process = match state.process.take() {
            Some(process) => process,
            None => self.start(&mut state).await?,
        };
        let ask = to_ask(request, watcher.is_some());
        let (sender, mut pieces) = unbounded_channel();
        let answer = tokio::spawn(exchange(state, process, ask, sender, self.reply_timeout));
        while let Some(piece) = pieces.recv().await {
            if let Some(watcher) = watcher {
                watcher.send(&piece);
            }
        }
        let answer = answer.await;
        reply(answer.map_err(|error| ChatError::Internal(error.to_string()))??)
    }

    /// Ends the process and waits until its memory is free. Another request would start one again.
    pub async fn stop(&self) {
        // A reply that was withdrawn ends first.
        let process = self.state.lock().await.process.take();
        if let Some(process) = process {
            process.kill().await;
        }
    }

    /// Wraps the model so that its calls are journaled. They cost tokens, but no money.
    pub fn metered(
        self,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
        interrupt: &Interrupt,
    ) -> Arc<dyn ChatModel> {
        let metered = Metered::with_keys(self, Vec::new(), LIMITS, folder, cap, format);
        Arc::new(metered.with_interrupt(interrupt.clone()))
    }
}

fn find_program() -> Result<PathBuf, RunError> {
    let missing = || {
        RunError::Environment(format!(
            "`{PROGRAM}` is not built: run `just embedded` once (it compiles llama.cpp)"
        ))
    };
    program::find(PROGRAM).ok_or_else(missing)
}

/// The sampling seed, derived from conversation, sample and turn.
fn seed(request: &ChatRequest<'_>) -> u32 {
    let of = (request.key, request.sample, request.messages.len());
    // Keep the lower 32 bits.
    Digest::of_json(&of).seed() as u32
}

/// Sends a request to a process, which is kept for the next one if it answers. Runs in a task of its own, since a request
/// that is withdrawn has an answer too.
async fn exchange(
    mut state: OwnedMutexGuard<ProcessState>,
    mut process: Process,
    ask: Ask,
    pieces: UnboundedSender<String>,
    reply_timeout: Duration,
) -> Result<Answer, ChatError> {
    let answer = tokio::time::timeout(reply_timeout, process.exchange(&ask, &pieces)).await;
    // A process that failed is killed, and the next request starts another one.
    let answer = answer.map_err(|_| ChatError::Timeout)?;
    let answer = answer.map_err(ChatError::Broken)?;
    state.process = Some(process);
    Ok(answer)
}

fn reply(answer: Answer) -> Result<Reply, ChatError> {
    match answer {
        Answer::Reply(reply) => Ok(Reply {
            content: reply.content,
            usage: Usage {
                prompt_tokens: reply.prompt_tokens,
                completion_tokens: reply.completion_tokens,
            },
            truncated: reply.truncated,
            repetition: false,
        }),
        Answer::Refused(text) => Err(ChatError::Rejected(text)),
        Answer::Failed(text) => Err(ChatError::Broken(text)),
        Answer::Text(_) => Err(ChatError::Internal("a piece is no answer".to_owned())),
    }
}

fn to_ask(request: &ChatRequest<'_>, stream: bool) -> Ask {
    let messages = request.messages.iter();
    Ask {
        messages: messages
            .map(|message| Message::new(message.role.name(), &message.content))
            .collect(),
        temperature: request.sampling.temperature as f32,
        top_p: request.sampling.top_p as f32,
        max_tokens: request.sampling.max_tokens,
        seed: seed(request),
        stop: request.stop.to_vec(),
        stream,
    }
}

#[async_trait]
impl ChatModel for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        Some(Price::default())
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.ask(request, None).await
    }

    async fn reply_live(
        &self,
        request: &ChatRequest<'_>,
        watcher: &ReplyWatcher,
    ) -> Result<Reply, ChatError> {
        self.ask(request, Some(watcher)).await
    }
}

#[cfg(test)]
mod tests;
