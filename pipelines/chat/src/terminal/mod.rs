//! A conversation in the terminal.
//!
//! | module | content |
//! | --- | --- |
//! | [`input`] | what a person types |
//! | [`reply_text`] | the text of a reply while it arrives |
//! | [`images`] | pictures by the protocol of the terminal |
//! | [`screen`] | what a person sees |
//! | [`sixel`] | pictures as sixels |
//! | [`style`] | colors |

pub(crate) mod images;
pub(crate) mod input;
mod reply_text;
pub(crate) mod screen;
mod sixel;
mod style;

use std::fs::OpenOptions;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use pybench_interpreter::{EntryKind, FileEntry};
use pybench_run::{BudgetCap, RunError, write_output};
use pybench_types::text::{count, dollars, line, size};
use pybench_types::trajectory::Verdict;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::conversation::Conversation;
use crate::dataset::add;
use crate::entry::{Entry, message_positions};
use crate::export::export;
use crate::grade::grade;
use crate::live::{Ended, Live};
use images::{ImageProtocol, Images};
use input::{HELP, Input};
use screen::Screen;

/// Lines that are read before they are needed.
const LINES: usize = 64;
/// Characters of a message in `/history`.
const MAX_SHOWN: usize = 100;

/// A person at the terminal, or a program that writes to the standard input.
pub(crate) struct Terminal {
    lines: mpsc::Receiver<String>,
    interrupt: Signal,
    terminate: Signal,
    screen: Screen,
    /// Whether a person types, who can react to an error.
    is_interactive: bool,
}

/// Whether the chat goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    GoOn,
    End,
}

/// What came of work.
enum Done {
    Ended(Ended),
    Files(Vec<FileEntry>),
    Text(String),
    Verdict(Verdict),
}

impl Terminal {
    /// Takes the standard input, the standard output and Ctrl-C of this process.
    ///
    /// # Errors
    /// [`RunError::Environment`] if Ctrl-C cannot be handled.
    pub(crate) fn open(
        conversation: &Conversation,
        asked: ImageProtocol,
    ) -> Result<Self, RunError> {
        let handler = |kind| {
            signal(kind)
                .map_err(|error| RunError::Environment(format!("cannot handle Ctrl-C: {error}")))
        };
        let is_terminal = std::io::stdout().is_terminal();
        let variable = |name: &str| std::env::var(name).ok();
        let no_color = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let folder = conversation.history().root().join("pictures");
        let images = Images::new(asked, is_terminal, folder, variable);
        let shows_code = conversation.agent().format.tools().is_some();
        Ok(Self {
            lines: read_lines(),
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
            screen: Screen::new(is_terminal && !no_color, images, shows_code),
            is_interactive: std::io::stdin().is_terminal(),
        })
    }

    /// Does what `first` says, then what is typed, until the end of the input, `/quit`, or Ctrl-C twice.
    ///
    /// # Errors
    /// The standard output cannot be written; where no person types, the first error of the conversation.
    pub(crate) async fn talk(
        &mut self,
        conversation: &mut Conversation,
        first: Vec<Input>,
    ) -> Result<(), RunError> {
        self.screen.note(&format!(
            "conversation {} with {}; /help lists the commands",
            conversation.id(),
            line(conversation.agent().model.name())
        ));
        for input in first {
            if let Input::Message(text) = &input {
                self.screen.print(&format!("{}\n", text.trim_end()))?;
            }
            if self.perform(conversation, input).await? == Flow::End {
                return Ok(());
            }
        }
        while let Some(text) = self.read().await {
            let flow = match Input::parse(&text) {
                Ok(Some(input)) => self.perform(conversation, input).await?,
                Ok(None) => Flow::GoOn,
                Err(problem) => self.problem(RunError::BadInput(problem))?,
            };
            if flow == Flow::End {
                break;
            }
        }
        Ok(())
    }

    /// Reads a message or command; `None` at the end of the input, and for Ctrl-C twice.
    async fn read(&mut self) -> Option<String> {
        let (mut text, mut pressed) = (String::new(), false);
        loop {
            if self.is_interactive {
                self.screen
                    .prompt(if text.is_empty() { "> " } else { ". " });
            }
            tokio::select! {
                typed = self.lines.recv() => match typed {
                    None => return (!text.trim().is_empty()).then_some(text),
                    Some(typed) => match typed.strip_suffix('\\') {
                        Some(part) => {
                            text += part;
                            text.push('\n');
                        }
                        None => return Some(text + &typed),
                    },
                },
                _ = self.interrupt.recv() => {
                    if pressed {
                        return None;
                    }
                    pressed = true;
                    text.clear();
                    self.screen.note("\npress Ctrl-C again to end the chat");
                }
                _ = self.terminate.recv() => return None,
            }
        }
    }

    /// Does what was typed.
    async fn perform(
        &mut self,
        conversation: &mut Conversation,
        input: Input,
    ) -> Result<Flow, RunError> {
        match &input {
            Input::Quit => return Ok(Flow::End),
            Input::Help => {
                self.screen.print(HELP)?;
                return Ok(Flow::GoOn);
            }
            _ => {}
        }
        let (live, mut events) = Live::new();
        let work = work(conversation, input, &live);
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => return Ok(Flow::End),
                _ = self.interrupt.recv() => {
                    if live.stop.is_requested() {
                        return Ok(Flow::End);
                    }
                    live.stop.request();
                    self.screen.note("\nstopping; press Ctrl-C again to end the chat");
                }
                Some(event) = events.recv() => self.screen.show(&event)?,
                done = &mut work => break done,
            }
        };
        while let Ok(event) = events.try_recv() {
            self.screen.show(&event)?;
        }
        self.screen.end_work()?;
        match done {
            Ok(done) => self.done(done).map(|()| Flow::GoOn),
            Err(error) => self.problem(error),
        }
    }

    fn done(&self, done: Done) -> Result<(), RunError> {
        match done {
            Done::Ended(Ended::Answered | Ended::Stopped) => Ok(()),
            Done::Ended(Ended::MaxTurns) => {
                self.screen.note(
                    "the model has sent as many replies as one message may get; /continue lets it go on",
                );
                Ok(())
            }
            Done::Files(files) => self.screen.print(&listed(&files)),
            Done::Text(text) => self.screen.print(&text),
            Done::Verdict(verdict) => self.screen.print(&verdict_text(&verdict)),
        }
    }

    /// A person reads an error and goes on; a program ends with it.
    fn problem(&self, error: RunError) -> Result<Flow, RunError> {
        if !self.is_interactive {
            return Err(error);
        }
        let hint = match error {
            RunError::Endpoint(_) => "; /continue asks again",
            _ => "",
        };
        self.screen.error(&format!("{error}{hint}"));
        Ok(Flow::GoOn)
    }
}

/// The lines of the standard input, which another thread reads: reading blocks.
fn read_lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut bytes = Vec::new();
        while input
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
            if sender.blocking_send(text).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

async fn work(
    conversation: &mut Conversation,
    input: Input,
    live: &Live,
) -> Result<Done, RunError> {
    let ended = match input {
        Input::Message(text) => conversation.send(&text, live).await,
        Input::Edit(number, text) => conversation.edit(number, &text, live).await,
        Input::Retry => conversation.regenerate(live).await,
        Input::Continue => conversation.go_on(live).await,
        Input::Restore => conversation.restore(live).await.map(|_| Ended::Answered),
        Input::Put(path) => put(conversation, &path, live).map(|()| Ended::Answered),
        Input::Files => return conversation.files(live).await.map(Done::Files),
        Input::Get(path) => return get(conversation, &path, live).await.map(Done::Text),
        Input::History => return Ok(Done::Text(history(conversation))),
        Input::Save(form, path) => {
            let name = format!("chat-{}.{}", conversation.id(), form.extension());
            let path = path.unwrap_or_else(|| PathBuf::from(name));
            write_output(&path, export((&*conversation).into(), form).as_bytes())?;
            return Ok(Done::Text(format!("{}\n", path.display())));
        }
        Input::Grade => return grade(conversation, live).await.map(Done::Verdict),
        Input::Add => {
            let verdict = add(conversation, live).await?;
            return Ok(verdict.map_or(Done::Ended(Ended::Answered), Done::Verdict));
        }
        Input::Limits => return limits(conversation).map(Done::Text),
        Input::Quit | Input::Help => Ok(Ended::Answered),
    };
    ended.map(Done::Ended)
}

fn put(conversation: &mut Conversation, path: &Path, live: &Live) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        RunError::BadInput(format!(
            "{}: this is not the path of a file",
            path.display()
        ))
    })?;
    let most = conversation.settings().interpreter.limits.file_mib << 20;
    let file = std::fs::File::open(path).map_err(wrap())?;
    let mut bytes = Vec::new();
    // One byte more shows that the file is too large.
    let mut part = file.take(most.saturating_add(1));
    part.read_to_end(&mut bytes).map_err(wrap())?;
    conversation.put_file(name, &bytes, live)
}

/// Copies a file of the session into the current folder, where no file of its name may be.
async fn get(conversation: &mut Conversation, path: &str, live: &Live) -> Result<String, RunError> {
    let (mut file, bytes) = conversation.open_file(path, live).await?;
    let name = Path::new(path).file_name().unwrap_or_default();
    let wrap = || RunError::io(format!("writing {}", Path::new(name).display()));
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true);
    let mut copy = options.open(name).map_err(wrap())?;
    std::io::copy(&mut file, &mut copy).map_err(wrap())?;
    Ok(format!("{}: {}\n", Path::new(name).display(), size(bytes)))
}

fn history(conversation: &Conversation) -> String {
    let entries = conversation.entries();
    let positions = message_positions(entries);
    let text = |at: usize| match &entries[at] {
        Entry::Message { text } => line(text).chars().take(MAX_SHOWN).collect::<String>(),
        _ => String::new(),
    };
    let numbered = positions.iter().enumerate();
    let lines = numbered.map(|(number, at)| format!("{:>3}  {}\n", number + 1, text(*at)));
    lines.collect()
}

fn listed(files: &[FileEntry]) -> String {
    let lines = files.iter().map(|entry| {
        let shown = match entry.kind {
            EntryKind::File => size(entry.size),
            _ => "no file".to_owned(),
        };
        format!("{shown:>12}  {}\n", line(&entry.path))
    });
    let text: String = lines.collect();
    match text.is_empty() {
        true => "there are no files\n".to_owned(),
        false => text,
    }
}

fn verdict_text(verdict: &Verdict) -> String {
    let mut text = format!(
        "{}\n",
        if verdict.accepted {
            "accepted"
        } else {
            "rejected"
        }
    );
    for finding in &verdict.findings {
        let outcome = serde_json::json!(finding.outcome);
        text += &format!(
            "  {:<8} {} {}: {}\n",
            outcome.as_str().unwrap_or_default(),
            line(&finding.filter),
            line(&finding.subject),
            line(&finding.detail)
        );
    }
    text
}

fn limits(conversation: &Conversation) -> Result<String, RunError> {
    let (settings, agent) = (conversation.settings(), conversation.agent());
    let (limits, spent) = (&settings.interpreter.limits, conversation.spending()?);
    let cap = BudgetCap::of(&settings.budget);
    let of = |cap: Option<String>| cap.map_or(String::new(), |cap| format!(" of {cap}"));
    let network = match settings.interpreter.network.len() {
        0 => "none".to_owned(),
        hosts => format!("{hosts} hosts"),
    };
    let mut text = format!(
        "a message   at most {} replies of {} tokens each\n\
         a cell      {} s, {} characters of output\n\
         a session   {} MiB of memory, {} processes, {} cores, files of {} MiB, network: {network}\n\
         tokens      {}{}\n",
        agent.rollout.max_turns,
        count(agent.rollout.sampling.max_tokens.into()),
        limits.cell_seconds,
        count(limits.output_chars as u64),
        limits.memory_mib,
        limits.processes,
        limits.cpus,
        limits.file_mib,
        count(spent.tokens),
        of(cap.tokens.map(count)),
    );
    text += &match agent.model.price() {
        Some(_) => format!(
            "cost        {}{}\n",
            dollars(spent.micro_usd),
            of(cap.micro_usd.map(dollars))
        ),
        None => "cost        unknown: the model has no price\n".to_owned(),
    };
    if spent.uncertain > 0 {
        let uncertain = spent.uncertain;
        text +=
            &format!("            {uncertain} calls did not end, and count with their maximum\n");
    }
    for warning in conversation.warnings() {
        text += &format!("not kept    {}\n", line(&warning));
    }
    Ok(text)
}
