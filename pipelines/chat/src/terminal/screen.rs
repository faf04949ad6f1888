//! Writes a conversation to the terminal. The conversation goes to the standard output, notes go to the standard error.

use std::collections::BTreeMap;
use std::io::Write as _;

use pybench_agent::observation_text;
use pybench_run::RunError;
use pybench_types::observation::{Observation, Output, Stopped};
use pybench_types::text::{count, line, size, visible};

use super::images::Images;
use super::reply_text::ReplyText;
use super::style::{CODE, DIM, ERROR, RESET, WARNING};
use crate::entry::Entry;
use crate::export::picture;
use crate::live::{Event, Restored};

/// Maximum number of lines of a traceback; the last ones say most.
const MAX_TRACEBACK: usize = 30;

/// What a person sees.
pub(crate) struct Screen {
    styled: bool,
    images: Images,
    text: ReplyText,
    /// Whether the code of cells is not part of the text of replies.
    shows_code: bool,
    /// Whether the cell has put something out, and whether that ended with its line.
    has_output: bool,
    ends_line: bool,
}

impl Screen {
    /// `styled`: with colors. `shows_code`: the code of cells is not part of the text of replies.
    pub(super) fn new(styled: bool, images: Images, shows_code: bool) -> Self {
        Self {
            styled,
            images,
            text: ReplyText::new(styled),
            shows_code,
            has_output: false,
            ends_line: true,
        }
    }

    /// Shows something that happened.
    ///
    /// # Errors
    /// The standard output, or the file of a picture, cannot be written.
    pub(super) fn show(&mut self, event: &Event) -> Result<(), RunError> {
        match event {
            Event::ReplyText(piece) => {
                let text = self.text.push(piece);
                write(&text)
            }
            Event::CellStarted(code) => {
                (self.has_output, self.ends_line) = (false, true);
                match self.shows_code {
                    true => write(&self.paint(CODE, &visible(code))),
                    false => Ok(()),
                }
            }
            Event::Output(output) => self.output(output),
            Event::Saved(entry) => self.saved(entry),
            Event::Rewound { .. } => Ok(()),
            Event::Restoring { cell, cells } => {
                if *cell == 1 {
                    self.note(&format!("restoring the session: {cells} cells run again"));
                }
                Ok(())
            }
            Event::Restored(restored) => {
                self.restored(restored);
                Ok(())
            }
            Event::Note(text) => {
                self.note(text);
                Ok(())
            }
        }
    }

    fn saved(&mut self, entry: &Entry) -> Result<(), RunError> {
        match entry {
            Entry::Reply { .. } => write(&self.text.finish())?,
            Entry::PartialReply { .. } => {
                write(&self.text.finish())?;
                self.note("stopped; /retry asks again, or write a message");
            }
            Entry::Run { run, .. } if run.cell.is_none() => {
                self.note(observation_text(&run.observation).trim_end());
            }
            Entry::Run {
                run,
                stopped_by_person,
            } => self.cell_ended(&run.observation, *stopped_by_person)?,
            Entry::File(file) => {
                self.note(&format!("data/{}: {}", file.name, size(file.size)));
            }
            Entry::Message { .. } | Entry::Rewind { .. } => {}
        }
        Ok(())
    }

    fn output(&mut self, output: &Output) -> Result<(), RunError> {
        if !std::mem::replace(&mut self.has_output, true) {
            write(&self.paint(DIM, "── output"))?;
        }
        match output {
            Output::Stream { name, text } => {
                let text = visible(text);
                self.ends_line = text.ends_with('\n');
                match self.styled && name == "stderr" {
                    true => write(&format!("{WARNING}{text}{RESET}")),
                    false => write(&text),
                }
            }
            Output::Result { data } | Output::Display { data } => self.rich(data),
            Output::Chart { .. } => Ok(()),
        }
    }

    /// A picture, or else the text of an output.
    fn rich(&mut self, data: &BTreeMap<String, String>) -> Result<(), RunError> {
        self.end_line()?;
        if let Some((media, content)) = picture(data) {
            return write(&self.images.show(media, &content)?);
        }
        match data.get("text/plain") {
            Some(text) => write(&format!("{}\n", visible(text.trim_end_matches('\n')))),
            None => {
                let types: Vec<_> = data.keys().map(|name| line(name)).collect();
                write(&format!("[{}]\n", types.join(", ")))
            }
        }
    }

    /// The exception of a cell, and why it was stopped.
    fn cell_ended(
        &mut self,
        observation: &Observation,
        stopped_by_person: bool,
    ) -> Result<(), RunError> {
        self.end_line()?;
        if let Some(error) = &observation.error {
            let traceback = visible(error.traceback.trim_end());
            let lines: Vec<&str> = traceback.lines().collect();
            let last = &lines[lines.len().saturating_sub(MAX_TRACEBACK)..];
            write(&self.paint(ERROR, &last.join("\n")))?;
        }
        let kept = match observation.stopped {
            None => return Ok(()),
            Some(Stopped::Interrupted) => "variables are kept",
            Some(Stopped::Restarted | Stopped::Died) => "the interpreter was restarted",
        };
        let why = match stopped_by_person {
            true => "the cell was stopped",
            false => "the cell was ended",
        };
        self.note(&format!("{why}; {kept}"));
        Ok(())
    }

    fn restored(&self, restored: &Restored) {
        let numbers = |numbers: &[usize]| {
            let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
            texts.join(", ")
        };
        if !restored.differing.is_empty() {
            self.note(&format!(
                "these cells gave another output than before, so variables may differ: {}",
                numbers(&restored.differing)
            ));
        }
        if !restored.skipped.is_empty() {
            self.note(&format!(
                "these cells had been stopped and did not run again, so variables of them are missing: {}",
                numbers(&restored.skipped)
            ));
        }
        let cells = count(restored.cells as u64);
        self.note(&format!("the session is restored: {cells} cells ran again"));
    }

    /// Ends what was begun when work ends early.
    ///
    /// # Errors
    /// The standard output cannot be written.
    pub(super) fn end_work(&mut self) -> Result<(), RunError> {
        let rest = self.text.finish();
        write(&rest)?;
        self.end_line()
    }

    fn end_line(&mut self) -> Result<(), RunError> {
        match std::mem::replace(&mut self.ends_line, true) {
            true => Ok(()),
            false => write("\n"),
        }
    }

    /// A note to the person, on the standard error. Its text may be hostile.
    pub(super) fn note(&self, text: &str) {
        let _ = std::io::stderr().write_all(self.paint(DIM, &visible(text)).as_bytes());
    }

    /// An error, on the standard error.
    pub(super) fn error(&self, text: &str) {
        let text = self.paint(ERROR, &format!("error: {}", visible(text)));
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Writes a text as it is, with control characters as symbols.
    ///
    /// # Errors
    /// The standard output cannot be written.
    pub(super) fn print(&self, text: &str) -> Result<(), RunError> {
        write(&visible(text))
    }

    /// What stands before a message.
    pub(super) fn prompt(&self, text: &str) {
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn paint(&self, color: &str, text: &str) -> String {
        match self.styled {
            true => format!("{color}{text}{RESET}\n"),
            false => format!("{text}\n"),
        }
    }
}

/// Writes to the standard output at once.
fn write(text: &str) -> Result<(), RunError> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(RunError::io("writing to the standard output"))
}
