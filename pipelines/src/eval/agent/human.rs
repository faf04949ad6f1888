//! A person at the terminal, for comparison.

use async_trait::async_trait;
use pybench::agent::Format;
use pybench::llm::{ChatRequest, Price, Reply, Teacher, TeacherError};
use pybench::trajectory::{Role, Usage};
use std::io::{BufRead, Write};

/// Most lines of one reply.
const MOST_LINES: usize = 10_000;
const HELP: &str = "Type Python and end it with a line that is a single dot; or type /done and the answer, ended likewise.\n";

/// Asks whoever sits there.
pub struct Human {
    format: &'static dyn Format,
}

impl Human {
    /// At the terminal of this process.
    pub fn new(format: &'static dyn Format) -> Self {
        Self { format }
    }
}

/// Escapes control characters, so that nothing in a prompt or an output drives the terminal.
fn shown(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(safe).collect()
}

/// A reply: lines up to a single dot. `None` at the end of the input.
fn read_reply(input: &mut dyn BufRead) -> std::io::Result<Option<String>> {
    let mut lines: Vec<String> = Vec::new();
    for line in input.lines().take(MOST_LINES) {
        let line = line?;
        if line == "." {
            return Ok(Some(lines.join("\n")));
        }
        lines.push(line);
    }
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// What was typed, in the format's words.
fn framed(text: &str, format: &dyn Format) -> String {
    match text.trim_start().strip_prefix("/done") {
        Some(answer) => format.write_answer(answer.trim()),
        None => format.write_step("", text),
    }
}

#[async_trait]
impl Teacher for Human {
    fn name(&self) -> &str {
        "human"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let first = !request.messages.iter().any(|m| m.role == Role::Assistant);
        let news = request
            .messages
            .iter()
            .rev()
            .take_while(|m| m.role == Role::User);
        let mut news: Vec<_> = news.map(|m| shown(&m.content)).collect();
        news.reverse();
        let help = if first { HELP } else { "" };
        let text = format!("\n{}\n{help}> ", news.join("\n"));
        let typed = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            read_reply(&mut std::io::stdin().lock())
        });
        let internal = |error: String| TeacherError::Internal(error);
        let typed = typed.await.map_err(|error| internal(error.to_string()))?;
        let typed = typed.map_err(|error| internal(format!("the terminal: {error}")))?;
        let typed = typed.ok_or_else(|| internal("nobody is at the terminal".to_owned()))?;
        Ok(Reply {
            content: framed(&typed, self.format),
            usage: Usage::default(),
            truncated: false,
            fault: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench::agent::{Parsed, PybenchFormat};

    #[test]
    fn what_a_person_types_is_a_cell_or_an_answer() {
        let mut input = "x = 1\nprint(x)\n.\n/done It is 1.\n.\n".as_bytes();
        let cell = framed(&read_reply(&mut input).unwrap().unwrap(), &PybenchFormat);
        assert_eq!(PybenchFormat.parse(&cell), Parsed::Cell("x = 1\nprint(x)"));
        let answer = framed(&read_reply(&mut input).unwrap().unwrap(), &PybenchFormat);
        assert_eq!(PybenchFormat.parse(&answer), Parsed::Answer("It is 1."));
        assert_eq!(read_reply(&mut input).unwrap(), None);
        assert_eq!(shown("a\u{1b}[2J\n"), "a\\u{1b}[2J\n");
    }
}
