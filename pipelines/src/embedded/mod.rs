//! A GGUF model on this machine, as a teacher: the program `pybench-embedded` answers in a process of its
//! own, which is given the file and no environment, hence no keys.

mod catalogue;
mod process;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench::id::Digest;
use pybench::llm::{ChatRequest, Metered, Price, Reply, Teacher, TeacherError};
use pybench::run::{BudgetCap, RunError, RunFolder};
use pybench::trajectory::{Role, Usage};
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
    /// `gguf:<name>-<digest>`: enters ids, so that another file is another teacher.
    pub name: String,
    path: PathBuf,
    context: Option<u32>,
}

impl Model {
    /// A file (relative to `root`), which must have `sha256` where that is given, or a name of the
    /// catalogue, which is fetched into `cache`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for what is neither, and for another SHA-256; [`RunError::Environment`] where
    /// the catalogue's file cannot be had.
    pub async fn find(
        model: &str,
        sha256: Option<&str>,
        context: Option<u32>,
        root: &Path,
        cache: &Path,
    ) -> Result<Self, RunError> {
        let entry = catalogue::entry(model)?;
        let path = match &entry {
            Some(entry) => entry.fetch(root, cache).await?,
            None => root.join(model),
        };
        let hash = path.clone();
        let found = tokio::task::spawn_blocking(move || crate::hub::sha256(&hash)).await;
        let found = found.map_err(|error| RunError::Internal(error.to_string()))?;
        let found = found.map_err(|error| {
            RunError::BadInput(format!(
                "{}: {error}; the catalogue has {}",
                path.display(),
                catalogue::names().join(", ")
            ))
        })?;
        let pinned = sha256.or(entry.as_ref().map(|entry| &*entry.sha256));
        if let Some(pinned) = pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(&found)) {
            return Err(RunError::BadInput(format!(
                "{} has SHA-256 {found}, not the pinned {pinned}",
                path.display()
            )));
        }
        Ok(Self {
            name: named(model, &found),
            path,
            context,
        })
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
    model: Model,
    program: PathBuf,
    patience: Duration,
    /// `None` while nobody is there: before the first question, and after one that failed.
    process: Mutex<Option<Process>>,
}

impl Embedded {
    /// Starts the process, so that what is wrong with the model is known at once.
    ///
    /// # Errors
    /// [`RunError::Environment`] where the program is not built; [`RunError::BadInput`] with its words where
    /// it cannot use the model.
    pub async fn open(model: Model) -> Result<Self, RunError> {
        let program = program::find(PROGRAM).ok_or_else(|| {
            RunError::Environment(format!(
                "`{PROGRAM}` is not built: `just embedded` builds it (llama.cpp, once)"
            ))
        })?;
        let process = Process::start(&program, &model.path, model.context).await;
        let process = process.map_err(RunError::BadInput)?;
        Ok(Self {
            model,
            program,
            patience: PATIENCE,
            process: Mutex::new(Some(process)),
        })
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

/// Another draw for every task, sample and turn; the same for the same.
fn seed(request: &ChatRequest<'_>) -> u32 {
    let of = (&request.task.id, request.sample, request.messages.len());
    // The lower half.
    Digest::of_json(&of).seed() as u32
}

fn ask(request: &ChatRequest<'_>) -> Ask {
    let role = |role: Role| match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let messages = request.messages.iter();
    Ask {
        messages: messages
            .map(|message| Message::new(role(message.role), &message.content))
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
        &self.model.name
    }

    fn price(&self) -> Option<Price> {
        Some(Price::default())
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let mut place = self.process.lock().await;
        // Whoever leaves in the middle (time-out, Ctrl-C, a failure) leaves nobody behind: the process
        // ends with the value.
        let mut process = match place.take() {
            Some(process) => process,
            None => Process::start(&self.program, &self.model.path, self.model.context)
                .await
                .map_err(TeacherError::Connection)?,
        };
        let answer = tokio::time::timeout(self.patience, process.exchange(&ask(request))).await;
        let answer = answer.map_err(|_| TeacherError::Timeout)?;
        let answer = answer.map_err(TeacherError::Broken)?;
        *place = Some(process);
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
#[path = "../../../tests/support/program.rs"]
mod write;

#[cfg(test)]
mod tests;
