//! What a judge is shown of an attempt: bounded, in words, with pictures where it sees.

use minijinja::value::Value;
use minijinja::{Environment, context};
use pybench::id::Digest;
use pybench::llm::Picture;
use pybench::trajectory::{Message, OutputFile, Role, Trajectory};

use crate::eval::record::{Attempt, cut};
use crate::eval::report::show::{Shown, Store};
use crate::eval::report::text::{line, size, visible};

/// Characters of the request, of a message, of all messages, of the answer, of a file.
const MOST_QUERY: usize = 8_000;
const MOST_MESSAGE: usize = 3_000;
const MOST_STEPS: usize = 30_000;
const MOST_ANSWER: usize = 8_000;
const MOST_FILE: usize = 2_000;
/// Files that are shown, and pictures among them.
const MOST_FILES: usize = 12;
const MOST_PICTURES: usize = 4;
/// Largest trajectory file that is read, bytes.
const MOST_TRAJECTORY: u64 = 32 << 20;

/// Bytes of what stands around each part: names of files, and notes on what was cut or left out.
const MOST_AROUND: usize = 1_000;

/// The prompts: pass or fail, and which of two.
pub(super) const PASS: &str = include_str!("../../../prompts/judge_pass.jinja");
pub(super) const PAIR: &str = include_str!("../../../prompts/judge_pair.jinja");

/// An attempt as a judge sees it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    query: String,
    steps: String,
    answer: String,
    files: String,
    pictures: Vec<Picture>,
}

/// What is asked: the text, and the pictures beside it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) pictures: Vec<Picture>,
}

impl Case {
    /// What can be shown of an attempt. `sees`: whether pictures are.
    pub(super) fn of(attempt: &Attempt, store: &mut Store<'_>, sees: bool) -> Self {
        let trajectory = attempt.trajectory.as_ref();
        let trajectory = trajectory.map_or(Err("there is none".to_owned()), |file| {
            let bytes = store.whole(file, MOST_TRAJECTORY)?;
            serde_json::from_slice::<Trajectory>(&bytes).map_err(|error| error.to_string())
        });
        Self::new(&attempt.prompt, trajectory, &attempt.outputs, store, sees)
    }

    /// What can be shown of a trajectory and the files it left.
    pub(super) fn new(
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
        let shown = outputs.iter().take(MOST_FILES);
        let shown = shown.map(|f| describe(f, store, sees, &mut pictures));
        let mut files: Vec<_> = shown.collect();
        match outputs.len() {
            0 => files.push("[none]".to_owned()),
            all if all > MOST_FILES => files.push(format!("[{} more]", all - MOST_FILES)),
            _ => {}
        }
        Self {
            query: shorten(query, MOST_QUERY),
            steps,
            answer: shorten(&answer, MOST_ANSWER),
            files: files.join("\n"),
            pictures,
        }
    }

    /// Did it pass?
    pub(super) fn question(&self) -> Result<Question, minijinja::Error> {
        let context = context! {
            mark => mark(&[self]), query => &*self.query, steps => &*self.steps,
            answer => &*self.answer, files => &*self.files,
        };
        Ok(Question {
            text: Environment::new().render_str(PASS, context)?,
            pictures: self.pictures.clone(),
        })
    }

    /// Which is better, this one (shown as A) or that one (as B)?
    pub(super) fn against(&self, other: &Self) -> Result<Question, minijinja::Error> {
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

/// A mark that the material cannot contain, since it follows from all of it.
fn mark(cases: &[&Case]) -> String {
    let all = cases
        .iter()
        .map(|c| (&c.query, &c.steps, &c.answer, &c.files));
    let digest = Digest::of_json(&all.collect::<Vec<_>>());
    format!("=={}==", digest.short())
}

/// At most so many characters and a note, also where what cannot be seen is spelled out.
fn shorten(text: &str, most: usize) -> String {
    cut(&visible(&cut(text, most)), most)
}

/// Bytes of the longest question whose request has so many; pictures come on top, so many.
pub(super) fn longest(query: usize, sees: bool) -> (usize, usize) {
    // A character is at most four bytes; what cannot be seen is spelled out in a few more.
    let characters = MOST_QUERY.min(8 * query) + MOST_STEPS + MOST_ANSWER + MOST_FILES * MOST_FILE;
    let bytes = PASS.len() + 4 * characters + (MOST_FILES + 4) * MOST_AROUND;
    (bytes, if sees { MOST_PICTURES } else { 0 })
}

/// The messages between the request and the answer, first and last kept where they are too many.
fn steps(messages: &[Message]) -> String {
    let said = messages.iter().filter(|m| m.role != Role::System);
    let said: Vec<_> = said
        .map(|m| {
            let who = if m.role == Role::Assistant {
                "agent"
            } else {
                "user or interpreter"
            };
            format!("[{who}]\n{}", shorten(&m.content, MOST_MESSAGE))
        })
        .collect();
    let (mut head, mut tail, mut room) = (0, said.len(), MOST_STEPS);
    // From both ends towards the middle, as long as there is room.
    while head < tail {
        let next = if head <= said.len() - tail {
            head
        } else {
            tail - 1
        };
        let length = said[next].chars().count();
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
    let parts = said[..head].iter().chain(&left_out).chain(&said[tail..]);
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
        false => words(store.show(file)),
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
    match store.drawn(file) {
        Ok((png, width, height)) if sees && pictures.len() < MOST_PICTURES => {
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

fn words(shown: Shown) -> String {
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
                MOST_FILE,
            )
        }
        Shown::Text { text, .. } => shorten(&format!("a text\n{text}"), MOST_FILE),
        Shown::Html { source, .. } => shorten(&format!("an HTML page\n{source}"), MOST_FILE),
        Shown::Nothing { reason } => format!("[{}]", line(&reason)),
    }
}
