//! Builds the judge's view of an attempt: text of limited length, plus pictures for a judge with vision.

use minijinja::value::Value;
use minijinja::{Environment, context};
use pybench_llm::Picture;
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, OutputFile, Role, Trajectory};

use pybench_profile::preview::{Shown, Store};
use pybench_types::text::cut;
use pybench_types::text::{line, size, visible};

/// Maximum characters of the query, of one message, of all messages, of the answer, and of one file.
const MAX_QUERY: usize = 8_000;
const MAX_MESSAGE: usize = 3_000;
const MAX_STEPS: usize = 30_000;
const MAX_ANSWER: usize = 8_000;
const MAX_FILE: usize = 2_000;
/// Maximum number of files, and of pictures among them.
const MAX_FILES: usize = 12;
const MAX_PICTURES: usize = 4;

/// Maximum bytes around each part: file names, and notes about truncated or omitted content.
const MAX_OVERHEAD: usize = 1_000;

/// The prompts: pass or fail, and a comparison of two attempts.
pub(super) const PASS: &str = include_str!("../../prompts/judge_pass.jinja");
pub(super) const PAIR: &str = include_str!("../../prompts/judge_pair.jinja");

/// The judge's view of an attempt.
#[derive(Clone, Debug)]
pub struct Case {
    query: String,
    steps: String,
    answer: String,
    files: String,
    pictures: Vec<Picture>,
}

/// A prompt for the judge: text and attached pictures.
#[derive(Clone, Debug)]
pub struct Question {
    pub text: String,
    pub pictures: Vec<Picture>,
}

impl Case {
    /// Builds the view from a trajectory and its output files. `sees` attaches pictures.
    pub fn new(
        query: &str,
        trajectory: Result<Trajectory, String>,
        outputs: &[OutputFile],
        store: &mut Store<'_>,
        sees: bool,
    ) -> Self {
        let (steps, answer) = match trajectory {
            Ok(trajectory) => (steps(&trajectory.messages), trajectory.answer().to_owned()),
            Err(reason) => (format!("[not to be had: {reason}]"), String::new()),
        };
        let mut pictures = Vec::new();
        let shown = outputs.iter().take(MAX_FILES);
        let shown = shown.map(|f| describe(f, store, sees, &mut pictures));
        let mut files: Vec<_> = shown.collect();
        match outputs.len() {
            0 => files.push("[none]".to_owned()),
            all if all > MAX_FILES => files.push(format!("[{} more]", all - MAX_FILES)),
            _ => {}
        }
        Self {
            query: shorten(query, MAX_QUERY),
            steps,
            answer: shorten(&answer, MAX_ANSWER),
            files: files.join("\n"),
            pictures,
        }
    }

    /// The question whether this attempt passed.
    ///
    /// # Errors
    /// The template cannot be rendered.
    pub fn question(&self) -> Result<Question, minijinja::Error> {
        let context = context! {
            mark => mark(&[self]), query => &*self.query, steps => &*self.steps,
            answer => &*self.answer, files => &*self.files,
        };
        Ok(Question {
            text: Environment::new().render_str(PASS, context)?,
            pictures: self.pictures.clone(),
        })
    }

    /// The question which attempt is better: this one (shown as A) or `other` (shown as B).
    ///
    /// # Errors
    /// The template cannot be rendered.
    pub fn against(&self, other: &Self) -> Result<Question, minijinja::Error> {
        let side = |name: &str, case: &Self| -> Value {
            context! {
                name => name, steps => &*case.steps, answer => &*case.answer, files => &*case.files,
            }
        };
        let sides = vec![side("A", self), side("B", other)];
        let context =
            context! { mark => mark(&[self, other]), query => &*self.query, sides => sides };
        let pictures = self.pictures.iter().chain(&other.pictures);
        Ok(Question {
            text: Environment::new().render_str(PAIR, context)?,
            pictures: pictures.cloned().collect(),
        })
    }
}

/// A delimiter that the material cannot contain, because it is a digest of the material.
fn mark(cases: &[&Case]) -> String {
    let all = cases
        .iter()
        .map(|c| (&c.query, &c.steps, &c.answer, &c.files));
    let digest = Digest::of_json(&all.collect::<Vec<_>>());
    format!("=={}==", digest.short())
}

/// Limits a text to `max_chars` characters plus a note, also after invisible characters are escaped.
fn shorten(text: &str, max_chars: usize) -> String {
    cut(&visible(&cut(text, max_chars)), max_chars)
}

/// Maximum bytes of a question for a query of `query` bytes, and maximum number of attached pictures.
pub(super) fn max_question_size(query: usize, sees: bool) -> (usize, usize) {
    // A character has at most four bytes; an invisible one is escaped with a few more.
    let characters = MAX_QUERY.min(8 * query) + MAX_STEPS + MAX_ANSWER + MAX_FILES * MAX_FILE;
    let bytes = PASS.len() + 4 * characters + (MAX_FILES + 4) * MAX_OVERHEAD;
    (bytes, if sees { MAX_PICTURES } else { 0 })
}

/// The messages between query and answer. If they are too long, messages in the middle are omitted.
fn steps(messages: &[Message]) -> String {
    let messages_text = messages.iter().filter(|m| m.role != Role::System);
    let messages_text: Vec<_> = messages_text
        .map(|m| {
            let who = if m.role == Role::Assistant {
                "agent"
            } else {
                "user or interpreter"
            };
            format!("[{who}]\n{}", shorten(&m.content, MAX_MESSAGE))
        })
        .collect();
    let (mut head, mut tail, mut room) = (0, messages_text.len(), MAX_STEPS);
    // Take messages from both ends toward the middle while there is room.
    while head < tail {
        let next = if head <= messages_text.len() - tail {
            head
        } else {
            tail - 1
        };
        let length = messages_text[next].chars().count();
        if length > room {
            break;
        }
        room -= length;
        if next == head { head += 1 } else { tail -= 1 }
    }
    let left_out = match tail - head {
        0 => Vec::new(),
        some => vec![format!("[{some} messages left out]")],
    };
    let parts = messages_text[..head]
        .iter()
        .chain(&left_out)
        .chain(&messages_text[tail..]);
    parts.cloned().collect::<Vec<_>>().join("\n")
}

fn describe(
    file: &OutputFile,
    store: &mut Store<'_>,
    sees: bool,
    pictures: &mut Vec<Picture>,
) -> String {
    let head = format!("{} ({})", line(&file.path), size(file.size));
    let body = match is_picture(&file.path) {
        true => picture(file, store, sees, pictures),
        false => describe_shown(store.show(file)),
    };
    format!("{head}: {body}")
}

fn is_picture(path: &str) -> bool {
    let extension = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    ["png", "jpg", "jpeg", "gif", "webp", "bmp"].contains(&&*extension)
}

fn picture(
    file: &OutputFile,
    store: &Store<'_>,
    sees: bool,
    pictures: &mut Vec<Picture>,
) -> String {
    match store.redrawn(file) {
        Ok((png, width, height)) if sees && pictures.len() < MAX_PICTURES => {
            pictures.push(Picture {
                media_type: "image/png",
                bytes: png,
            });
            format!(
                "a picture of {width} × {height} pixels, number {} of those attached here",
                pictures.len()
            )
        }
        Ok((_, width, height)) => format!("a picture of {width} × {height} pixels, not shown"),
        Err(reason) => format!("[{reason}]"),
    }
}

fn describe_shown(shown: Shown) -> String {
    match shown {
        Shown::Image { note, .. } => format!("a picture, {note}"),
        Shown::Audio { .. } => "a sound, not played".to_owned(),
        Shown::Table {
            columns,
            rows,
            note,
        } => {
            let rows = rows
                .iter()
                .map(|row| row.join(" | "))
                .collect::<Vec<_>>()
                .join("\n");
            shorten(
                &format!("a table ({note})\n{}\n{rows}", columns.join(" | ")),
                MAX_FILE,
            )
        }
        Shown::Text { text, .. } => shorten(&format!("a text\n{text}"), MAX_FILE),
        Shown::Html { source, .. } => shorten(&format!("an HTML page\n{source}"), MAX_FILE),
        Shown::Nothing { reason } => format!("[{}]", line(&reason)),
    }
}
