//! A GGUF model on this machine, as a teacher: the program `pybench-embedded` answers in a process of its
//! own, which is given the file and no environment, hence no keys.

mod catalogue;
mod process;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench::id::Digest;
use pybench::llm::{ChatRequest, Metered, Price, Reply, Teacher, TeacherError};
use pybench::run::{BudgetCap, RunError, RunFolder};
use pybench::trajectory::Usage;
use pybench_embedded::{Answer, Ask, Message};
use tokio::sync::Mutex;

use crate::program;
use process::Process;

/// The program, beside this one.
const PROGRAM: &str = "pybench-embedded";
/// One reply of a large model on a few cores.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// A model that a recipe names.
#[derive(Clone, Debug)]
pub struct Model {
    /// A name of the catalogue, or a file, relative to `root`.
    pub model: String,
    /// What the file must have; the catalogue's models are pinned there.
    pub sha256: Option<String>,
    /// Most tokens of a conversation.
    pub context: Option<u32>,
    /// The project's folder.
    pub root: PathBuf,
    /// The machine's cache, where models of the catalogue are kept.
    pub cache: PathBuf,
}

impl Model {
    /// The file and its SHA-256, which is the pinned one where one is pinned.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for what is neither of the catalogue nor a file, and for another SHA-256;
    /// [`RunError::Environment`] where the catalogue's file cannot be had.
    pub async fn find(&self) -> Result<(PathBuf, String), RunError> {
        let entry = catalogue::entry(&self.model)?;
        let path = match &entry {
            Some(entry) => entry.fetch(&self.root, &self.cache).await?,
            None => self.root.join(&self.model),
        };
        let hash = path.clone();
        let found = tokio::task::spawn_blocking(move || crate::hub::sha256(&hash)).await;
        let found = found.map_err(|error| RunError::Internal(error.to_string()))?;
        let shown = path.display();
        let found = found.map_err(|error| {
            let known = catalogue::names().join(", ");
            RunError::BadInput(format!("{shown}: {error}; the catalogue has {known}"))
        })?;
        let pinned = self.sha256.as_deref();
        let pinned = pinned.or(entry.as_ref().map(|entry| &*entry.sha256));
        match pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(&found)) {
            Some(pinned) => Err(RunError::BadInput(format!(
                "{shown} has SHA-256 {found}, not the pinned {pinned}"
            ))),
            None => Ok((path, found)),
        }
    }
}

/// The name that a pinned model has in ids: one of the catalogue, or a file with its SHA-256.
pub fn name(model: &str, sha256: Option<&str>) -> Option<String> {
    let entry = catalogue::entry(model).ok().flatten();
    let pinned = sha256.or(entry.as_ref().map(|entry| &*entry.sha256))?;
    Some(named(model, &pinned.to_ascii_lowercase()))
}

/// By the file's name, and enough of its digest to tell it from others.
fn named(model: &str, sha256: &str) -> String {
    let file = model.rsplit('/').next().unwrap_or_default();
    let stem = file.strip_suffix(".gguf").unwrap_or(file);
    let digest: String = sha256.chars().take(12).collect();
    format!("gguf:{stem}-{digest}")
}

/// A teacher behind that process. One question at a time: the process keeps what it has computed of
/// each conversation, and goes on from there.
pub struct Embedded {
    /// `gguf:<name>-<digest>`: enters ids, so that another file is another teacher.
    name: String,
    model: Model,
    program: PathBuf,
    patience: Duration,
    place: Mutex<Place>,
}

/// What is there so far.
#[derive(Default)]
struct Place {
    /// The file, once it was found and checked.
    path: Option<PathBuf>,
    /// `None` while nobody is there: before the first question, and after one that failed.
    process: Option<Process>,
}

impl Embedded {
    /// Finds the model and starts the process, so that what is wrong with either is known at once.
    ///
    /// # Errors
    /// As [`Model::find`]; [`RunError::Environment`] where the program is not built;
    /// [`RunError::BadInput`] with its words where it cannot use the model.
    pub async fn open(model: Model) -> Result<Self, RunError> {
        let program = built()?;
        let (path, digest) = model.find().await?;
        let process = Process::start(&program, &path, model.context).await;
        let place = Place {
            process: Some(process.map_err(RunError::BadInput)?),
            path: Some(path),
        };
        Ok(Self {
            name: named(&model.model, &digest),
            model,
            program,
            patience: PATIENCE,
            place: Mutex::new(place),
        })
    }

    /// The same without waiting: what is wrong with the model shows at the first question. Its name is
    /// known beforehand, so it has to be pinned.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a file without its SHA-256; [`RunError::Environment`] where the program
    /// is not built.
    pub fn pinned(model: Model) -> Result<Self, RunError> {
        let name = name(&model.model, model.sha256.as_deref()).ok_or_else(|| {
            let model = &model.model;
            RunError::BadInput(format!(
                "`{model}` is not in the catalogue ({}): pin the file by `sha256` (`sha256sum {model}`)",
                catalogue::names().join(", ")
            ))
        })?;
        Ok(Self {
            name,
            model,
            program: built()?,
            patience: PATIENCE,
            place: Mutex::default(),
        })
    }

    /// A process, with the model loaded.
    async fn start(&self, place: &mut Place) -> Result<Process, TeacherError> {
        let path = match &place.path {
            Some(path) => path.clone(),
            None => {
                let found = self.model.find().await;
                let found = found.map_err(|error| TeacherError::Rejected(error.to_string()))?;
                place.path.insert(found.0).clone()
            }
        };
        let process = Process::start(&self.program, &path, self.model.context).await;
        process.map_err(TeacherError::Connection)
    }

    /// The same with its calls journaled; they cost tokens and no money.
    pub fn metered(
        self,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
    ) -> Arc<dyn Teacher> {
        Arc::new(Metered::new(self, folder, cap, format))
    }
}

fn built() -> Result<PathBuf, RunError> {
    let missing = || {
        RunError::Environment(format!(
            "`{PROGRAM}` is not built: `just embedded` builds it (llama.cpp, once)"
        ))
    };
    program::find(PROGRAM).ok_or_else(missing)
}

/// Another draw for every task, sample and turn; the same for the same.
fn seed(request: &ChatRequest<'_>) -> u32 {
    let of = (&request.task.id, request.sample, request.messages.len());
    // The lower half.
    Digest::of_json(&of).seed() as u32
}

fn ask(request: &ChatRequest<'_>) -> Ask {
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
    }
}

#[async_trait]
impl Teacher for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        Some(Price::default())
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let mut place = self.place.lock().await;
        // Whoever leaves in the middle (time-out, Ctrl-C, a failure) leaves nobody behind: the process
        // ends with the value.
        let mut process = match place.process.take() {
            Some(process) => process,
            None => self.start(&mut place).await?,
        };
        let answer = tokio::time::timeout(self.patience, process.exchange(&ask(request))).await;
        let answer = answer.map_err(|_| TeacherError::Timeout)?;
        let answer = answer.map_err(TeacherError::Broken)?;
        place.process = Some(process);
        match answer {
            Answer::Reply(reply) => Ok(Reply {
                content: reply.content,
                usage: Usage {
                    prompt_tokens: reply.prompt_tokens,
                    completion_tokens: reply.completion_tokens,
                },
                truncated: reply.truncated,
                fault: None,
            }),
            Answer::Refused(text) => Err(TeacherError::Rejected(text)),
            Answer::Failed(text) => Err(TeacherError::Broken(text)),
        }
    }
}

#[cfg(test)]
mod tests;
