//! A person at the terminal as an agent.

use async_trait::async_trait;
use pybench_agent::Format;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::Price;
use pybench_types::trajectory::{Role, Usage};
use std::io::{BufRead, Write};

/// Maximum number of lines per reply.
const MAX_LINES: usize = 10_000;
const HELP: &str = "Type Python code, then a line with a single dot. To finish, type /done and your answer, then a line with a single dot.\n";

/// Asks the person at the terminal.
pub struct HumanAgent {
    format: &'static dyn Format,
}

impl HumanAgent {
    /// Uses the standard input and output of this process.
    pub fn new(format: &'static dyn Format) -> Self {
        Self { format }
    }
}

/// Escapes control characters, so that prompts and outputs cannot control the terminal.
fn escape_controls(text: &str) -> String {
    let safe = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(safe).collect()
}

/// Reads a reply: lines up to a single dot. `None` at the end of the input.
fn read_reply(input: &mut dyn BufRead) -> std::io::Result<Option<String>> {
    let mut lines: Vec<String> = Vec::new();
    for line in input.lines().take(MAX_LINES) {
        let line = line?;
        if line == "." {
            return Ok(Some(lines.join("\n")));
        }
        lines.push(line);
    }
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// Converts the typed text to the message format of the agent.
fn to_message(text: &str, format: &dyn Format) -> String {
    match text.trim_start().strip_prefix("/done") {
        Some(answer) => format.write_answer(answer.trim()),
        None => format.write_step("", text),
    }
}

#[async_trait]
impl ChatModel for HumanAgent {
    fn name(&self) -> &str {
        "human"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let first = !request.messages.iter().any(|m| m.role == Role::Assistant);
        let new_messages = request
            .messages
            .iter()
            .rev()
            .take_while(|m| m.role == Role::User);
        let mut new_messages: Vec<_> = new_messages.map(|m| escape_controls(&m.content)).collect();
        new_messages.reverse();
        let help = if first { HELP } else { "" };
        let text = format!("\n{}\n{help}> ", new_messages.join("\n"));
        let typed = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            read_reply(&mut std::io::stdin().lock())
        });
        let internal = |error: String| ChatError::Internal(error);
        let typed = typed.await.map_err(|error| internal(error.to_string()))?;
        let typed = typed
            .map_err(|error| internal(format!("could not read from the terminal: {error}")))?;
        let typed = typed.ok_or_else(|| {
            internal("standard input is closed; a human agent needs a terminal".to_owned())
        })?;
        Ok(Reply {
            content: to_message(&typed, self.format),
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_agent::Parsed;
    use pybench_agent::PybenchFormat;

    #[test]
    fn typed_text_is_a_cell_or_an_answer() {
        let mut input = "x = 1\nprint(x)\n.\n/done It is 1.\n.\n".as_bytes();
        let cell = to_message(&read_reply(&mut input).unwrap().unwrap(), &PybenchFormat);
        assert_eq!(PybenchFormat.parse(&cell), Parsed::Cell("x = 1\nprint(x)"));
        let answer = to_message(&read_reply(&mut input).unwrap().unwrap(), &PybenchFormat);
        assert_eq!(PybenchFormat.parse(&answer), Parsed::Answer("It is 1."));
        assert_eq!(read_reply(&mut input).unwrap(), None);
        assert_eq!(escape_controls("a\u{1b}[2J\n"), "a\\u{1b}[2J\n");
    }
}
