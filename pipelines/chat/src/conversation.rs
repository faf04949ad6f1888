//! A conversation that goes on: messages, replies, cells, files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use pybench_agent::format_error;
use pybench_interpreter::{EntryKind, FileEntry, Files, Interpreter, Session};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply, ReplyWatcher, token_bound};
use pybench_run::{BudgetCap, Price, Reservation, RunError};
use pybench_types::id::Digest;
use pybench_types::text::line;
use pybench_types::trajectory::{CellRun, Message, Usage};

use crate::entry::{self, Entry, InputFile, message_positions};
use crate::history::{History, Spending, new_id};
use crate::live::{Ended, Event, Live, Work};
use crate::live_session::{LiveSession, file_error, no_files};
use crate::model::ChatAgent;
use crate::settings::Settings;
use crate::transcript::{self, Next};

/// Maximum size of a message, bytes.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Maximum number of entries of a conversation.
pub const MAX_ENTRIES: usize = 10_000;
/// Maximum length of a file name, bytes.
const MAX_NAME: usize = 200;
/// Maximum depth of folders that are listed.
const MAX_DEPTH: usize = 8;
/// Tokens that an endpoint may count in addition to what was sent.
const UNSEEN_TOKENS: u64 = 4_096;

/// What a conversation works with.
#[derive(Clone)]
pub struct Tools {
    pub agent: ChatAgent,
    /// Starts the session.
    pub interpreter: Arc<dyn Interpreter>,
}

/// A conversation with a model, and its live session.
pub struct Conversation {
    id: String,
    settings: Settings,
    agent: ChatAgent,
    history: Arc<History>,
    session: LiveSession,
    /// The entries that count.
    entries: Vec<Entry>,
    /// Number of all that were saved.
    position: u64,
}

impl Conversation {
    /// A new conversation. It is saved with its first entry. Paths in the settings are relative to `root`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the settings are wrong.
    pub fn begin(
        history: Arc<History>,
        settings: Settings,
        tools: Tools,
        root: &Path,
    ) -> Result<Self, RunError> {
        Self::with(history, new_id(), settings, Vec::new(), tools, root)
    }

    /// Continues the conversation `id`, which has these settings, perhaps with another agent.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none.
    pub fn resume(
        history: Arc<History>,
        id: String,
        tools: Tools,
        root: &Path,
    ) -> Result<Self, RunError> {
        let saved = history.read(&id)?;
        Self::with(history, id, saved.settings, saved.entries, tools, root)
    }

    fn with(
        history: Arc<History>,
        id: String,
        settings: Settings,
        saved: Vec<Entry>,
        tools: Tools,
        root: &Path,
    ) -> Result<Self, RunError> {
        let seed = Digest::of_bytes(id.as_bytes()).seed();
        let session = LiveSession::new(tools.interpreter, &settings.interpreter, root, seed)?;
        Ok(Self {
            id,
            settings,
            agent: tools.agent,
            history,
            session,
            position: saved.len() as u64,
            entries: entry::current(saved),
        })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn agent(&self) -> &ChatAgent {
        &self.agent
    }

    pub fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// The entries that count, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The messages as the model reads them.
    pub fn messages(&self) -> Vec<Message> {
        transcript::messages(&self.entries, self.agent.format)
    }

    /// What comes next.
    pub fn next_step(&self) -> Next {
        transcript::next(&self.entries, self.agent.format)
    }

    /// Whether entries were saved, so that the conversation can be continued by its id.
    pub fn is_saved(&self) -> bool {
        self.position > 0
    }

    /// What its calls cost.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn spending(&self) -> Result<Spending, RunError> {
        self.history.spending(&self.id)
    }

    /// Limits that this machine cannot enforce, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.session.interpreter().warnings()
    }

    /// Sends a message and lets the model work until it answers.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for an empty or too long message; as [`Conversation::go_on`].
    pub async fn send(&mut self, text: &str, live: &Live) -> Work {
        check_message(text)?;
        let text = text.trim_end().to_owned();
        self.save(Entry::Message { text }, live)?;
        self.go_on(live).await
    }

    /// Lets the model go on: runs the cells of its last reply that have not run, and asks for replies until it answers.
    ///
    /// # Errors
    /// [`RunError::Endpoint`], [`RunError::Budget`], [`RunError::Environment`]: what was saved stays, and this can be called
    /// again.
    pub async fn go_on(&mut self, live: &Live) -> Work {
        let mut replies = 0;
        while !live.stop.is_requested() {
            let goes_on = match self.next_step() {
                Next::Person => return Ok(Ended::Answered),
                Next::Reply if replies >= self.agent.rollout.max_turns => {
                    return Ok(Ended::MaxTurns);
                }
                Next::Reply => {
                    replies += 1;
                    self.ask(live).await?
                }
                Next::Cells(cells) => match cells.into_iter().next() {
                    Some(cell) => self.run(cell, live).await?,
                    None => return Ok(Ended::Answered),
                },
            };
            if !goes_on {
                break;
            }
        }
        Ok(Ended::Stopped)
    }

    /// Replaces the person's message with this number, from 1, takes back all that followed it, and lets the model answer.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such message; as [`Conversation::send`].
    pub async fn edit(&mut self, number: usize, text: &str, live: &Live) -> Work {
        check_message(text)?;
        let positions = message_positions(&self.entries);
        let at = number.checked_sub(1).and_then(|at| positions.get(at));
        let at = *at.ok_or_else(|| {
            let count = positions.len();
            RunError::BadInput(format!(
                "there is no message {number}; the conversation has {count}"
            ))
        })?;
        self.rewind(at, live).await?;
        self.send(text, live).await
    }

    /// Takes back all that followed the last message, and lets the model answer it again.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no message; as [`Conversation::go_on`].
    pub async fn regenerate(&mut self, live: &Live) -> Work {
        let Some(at) = message_positions(&self.entries).pop() else {
            let text = "there is no message yet";
            return Err(RunError::BadInput(text.to_owned()));
        };
        self.rewind(at + 1, live).await?;
        self.go_on(live).await
    }

    /// Keeps the first entries. The session is restored where a cell or file is taken back.
    async fn rewind(&mut self, keep: usize, live: &Live) -> Result<(), RunError> {
        let Some(dropped) = self.entries.get(keep..).filter(|rest| !rest.is_empty()) else {
            return Ok(());
        };
        let changes_session = |entry: &Entry| matches!(entry, Entry::File(_) | Entry::Run { .. });
        let is_stale = dropped.iter().any(changes_session);
        self.append(&Entry::Rewind { keep: keep as u64 })?;
        self.entries.truncate(keep);
        live.send(Event::Rewound { keep });
        if is_stale {
            self.session.close().await;
        }
        Ok(())
    }

    /// Restores the session, if it does not run and has run cells; `false` if the person stopped it.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the interpreter cannot run.
    pub async fn restore(&mut self, live: &Live) -> Result<bool, RunError> {
        let has_run = |entry: &Entry| matches!(entry, Entry::Run { .. });
        match self.entries.iter().any(has_run) {
            true => Ok(self.session(live).await?.is_some()),
            false => Ok(true),
        }
    }

    /// Puts a file into `./data`, and replaces one of the same name.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the name is unsuitable, or the file too large.
    pub fn put_file(&mut self, name: &str, bytes: &[u8], live: &Live) -> Result<(), RunError> {
        check_name(name)?;
        let most = self.settings.interpreter.limits.file_mib;
        if bytes.len() as u64 > most << 20 {
            return Err(RunError::BadInput(format!(
                "{}: the file is larger than {most} MiB, the limit `interpreter.limits.file_mib` of the conversation",
                line(name)
            )));
        }
        let file = InputFile {
            name: name.to_owned(),
            id: self.history.store().put(bytes)?,
            size: bytes.len() as u64,
        };
        self.session.put(&file, self.history.store())?;
        self.save(Entry::File(file), live)
    }

    /// The files of the session, as [`listed_files`].
    ///
    /// # Errors
    /// As [`Conversation::restore`].
    pub async fn files(&mut self, live: &Live) -> Result<Vec<FileEntry>, RunError> {
        let session = self.session(live).await?.ok_or_else(not_restored)?;
        listed_files(&session.files().ok_or_else(no_files)?)
    }

    /// Access to the files of the session, if it runs.
    pub fn running_files(&mut self) -> Option<Files> {
        self.session.running()?.files()
    }

    /// Opens a regular file of the session; also returns its size.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none; as [`Conversation::restore`].
    pub async fn open_file(&mut self, path: &str, live: &Live) -> Result<(File, u64), RunError> {
        let session = self.session(live).await?.ok_or_else(not_restored)?;
        let files = session.files().ok_or_else(no_files)?;
        files.open(path).map_err(|error| file_error(&error))
    }

    /// Ends the session. What was saved stays.
    pub async fn close(mut self) {
        self.session.close().await;
    }

    /// The session, started and restored; `None` if the person stopped that.
    pub(crate) async fn session(
        &mut self,
        live: &Live,
    ) -> Result<Option<&mut dyn Session>, RunError> {
        let store = self.history.store();
        self.session.ensure(&self.entries, store, live).await
    }

    /// The interpreter, and the seed of the session.
    pub(crate) fn interpreter(&self) -> (Arc<dyn Interpreter>, u64) {
        (self.session.interpreter().clone(), self.session.seed())
    }

    /// Asks for a reply and saves it; `false` if the person stopped it.
    async fn ask(&mut self, live: &Live) -> Result<bool, RunError> {
        let messages = self.messages();
        let (sampling, stop) = (&self.agent.rollout.sampling, self.agent.format.stop());
        let price = self.agent.model.price();
        let most = cost(
            price,
            Usage {
                prompt_tokens: token_bound(&messages),
                completion_tokens: sampling.max_tokens.into(),
            },
        );
        let cap = BudgetCap::of(&self.settings.budget);
        let call = self.history.reserve(&self.id, most, cap)?;
        let request = ChatRequest {
            key: &Digest::of_bytes(self.id.as_bytes()),
            // Another number where the same messages are answered again.
            sample: u32::try_from(self.position).unwrap_or(u32::MAX),
            messages: &messages,
            sampling,
            stop: &stop,
            pictures: &[],
        };
        let (end, text) = reply_live(self.agent.model.as_ref(), &request, live).await;
        match end {
            Some(Ok(reply)) => {
                self.history.settle(&call, charge(price, &reply, most))?;
                self.save(Entry::Reply { reply }, live)?;
                Ok(true)
            }
            Some(Err(error)) => {
                if !error.may_be_charged() {
                    self.history.release(&call)?;
                }
                Err(endpoint_error(error))
            }
            // The call stays charged with its maximum, since nobody says what it cost.
            None if text.trim().is_empty() => Ok(false),
            None => {
                self.save(Entry::PartialReply { text }, live)?;
                Ok(false)
            }
        }
    }

    /// Runs a cell, or says why it cannot run, and saves what it gave; `false` if the person stopped it.
    async fn run(
        &mut self,
        cell: Result<String, &'static str>,
        live: &Live,
    ) -> Result<bool, RunError> {
        let (cell, observation, stopped_by_person) = match cell {
            Err(why) => (None, format_error(why, self.agent.format), false),
            Ok(code) => {
                if self.session(live).await?.is_none() {
                    return Ok(false);
                }
                live.send(Event::CellStarted(code.clone()));
                let (observation, stopped) = self.session.run(&code, live).await?;
                (Some(code), observation, stopped)
            }
        };
        let run = Entry::Run {
            run: CellRun { cell, observation },
            stopped_by_person,
        };
        self.save(run, live)?;
        Ok(!stopped_by_person)
    }

    /// Saves an entry, then shows it.
    fn save(&mut self, entry: Entry, live: &Live) -> Result<(), RunError> {
        self.append(&entry)?;
        self.entries.push(entry.clone());
        live.send(Event::Saved(entry));
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), RunError> {
        if self.position >= MAX_ENTRIES as u64 {
            return Err(RunError::BadInput(format!(
                "the conversation has {MAX_ENTRIES} entries, as many as can be; begin another one"
            )));
        }
        if self.position == 0 {
            self.history.begin(&self.id, &self.settings)?;
        }
        self.history.append(&self.id, self.position, entry)?;
        self.position += 1;
        Ok(())
    }
}

/// The files of a workspace, without folders and hidden files.
///
/// # Errors
/// The workspace cannot be read.
pub fn listed_files(files: &Files) -> Result<Vec<FileEntry>, RunError> {
    let mut entries = files
        .list("", MAX_DEPTH)
        .map_err(|error| file_error(&error))?;
    let is_hidden = |entry: &FileEntry| entry.path.split('/').any(|part| part.starts_with('.'));
    entries.retain(|entry| entry.kind != EntryKind::Folder && !is_hidden(entry));
    Ok(entries)
}

/// Asks for a reply and sends its text. Returns the end, `None` if the person stopped it, and the text that has arrived.
async fn reply_live(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    live: &Live,
) -> (Option<Result<Reply, ChatError>>, String) {
    let (watcher, mut pieces) = ReplyWatcher::new();
    let mut text = String::new();
    let mut show = |piece: String| {
        text.push_str(&piece);
        live.send(Event::ReplyText(piece));
    };
    let asked = model.reply_live(request, &watcher);
    tokio::pin!(asked);
    let end = loop {
        tokio::select! {
            biased;
            () = live.stop.requested() => break None,
            Some(piece) = pieces.recv() => show(piece),
            reply = &mut asked => break Some(reply),
        }
    };
    while let Ok(piece) = pieces.try_recv() {
        show(piece);
    }
    (end, text)
}

fn cost(price: Option<Price>, usage: Usage) -> Reservation {
    Reservation {
        micro_usd: price.map_or(0, |price| price.micro_usd(usage)),
        tokens: usage.total(),
    }
}

/// What a reply cost: what was reserved if the endpoint did not count its tokens, or counted more than there can be.
fn charge(price: Option<Price>, reply: &Reply, most: Reservation) -> Reservation {
    let possible = (most.tokens)
        .saturating_add(reply.content.len() as u64)
        .saturating_add(UNSEEN_TOKENS);
    match reply.usage {
        usage if usage == Usage::default() || usage.total() > possible => most,
        usage => cost(price, usage),
    }
}

fn endpoint_error(error: ChatError) -> RunError {
    match error {
        ChatError::Internal(text) => RunError::Internal(text),
        ChatError::Outage(text) => RunError::Environment(text),
        error => RunError::Endpoint(error.to_string()),
    }
}

fn not_restored() -> RunError {
    RunError::Conflict("stopped before the session was restored".to_owned())
}

fn check_message(text: &str) -> Result<(), RunError> {
    let problem = match text.len() {
        _ if text.trim().is_empty() => "the message is empty".to_owned(),
        length if length > MAX_MESSAGE => format!(
            "the message has {length} bytes, and at most {MAX_MESSAGE} can be sent; put a file into the conversation instead"
        ),
        _ => return Ok(()),
    };
    Err(RunError::BadInput(problem))
}

/// Checks the name of a file in `./data`.
fn check_name(name: &str) -> Result<(), RunError> {
    let plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "{:?} cannot be the name of a file in ./data: it has at most {MAX_NAME} bytes, no slash or control character, and does \
         not begin with a dot; give another name",
        line(name)
    )))
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
