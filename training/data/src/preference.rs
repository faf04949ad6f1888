//! Preference pairs: rows in TRL's conversational format, and their tokens.

use pybench_chat_template::{Chat, Message, Weight};
use pybench_types::held_out::Unseen;
use serde_json::{Map, Value};

use crate::reader::{MAX_MESSAGES, TOOLS_COLUMN, json_list, messages};
use crate::record::{Conversation, Preference};
use crate::render::{Rendered, Renderer};
use crate::tokenizer::TokenizerError;

/// The columns of a row.
pub(crate) const COLUMNS: [&str; 4] = ["prompt", "chosen", "rejected", TOOLS_COLUMN];

/// Why a pair has no tokens.
#[derive(Debug)]
pub(crate) enum PairError {
    Render(TokenizerError),
    /// The pair cannot be trained.
    Row(String),
}

/// Parses a row. Without `prompt`, the prompt is what both conversations begin with.
pub(crate) fn of_row(mut row: Map<String, Value>, location: &str) -> Result<Preference, String> {
    let tools = json_list(TOOLS_COLUMN, row.remove(TOOLS_COLUMN).unwrap_or_default())?;
    let mut column = |name: &str| match row.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(_)) => Err(format!(
            "{name} is a text; pairs are conversations, so it must be a list of messages such as \
             [{{\"role\": \"assistant\", \"content\": \"…\"}}]"
        )),
        Some(value) => messages(value)
            .map(Some)
            .map_err(|reason| format!("{name}: {reason}")),
    };
    let (prompt, chosen, rejected) = (column("prompt")?, column("chosen")?, column("rejected")?);
    let missing = |name: &str| {
        format!("there is no column {name}; pairs have the columns prompt, chosen and rejected")
    };
    let chosen = chosen.ok_or_else(|| missing("chosen"))?;
    let rejected = rejected.ok_or_else(|| missing("rejected"))?;
    let (prompt, chosen, rejected) = match prompt {
        Some(prompt) => (prompt, chosen, rejected),
        None => split_prompt(chosen, rejected),
    };
    let whole = |name: &str, reply: Vec<Message>| -> Result<Conversation, String> {
        let count = prompt.len() + reply.len();
        match reply.last() {
            Some(last) if last.is_assistant() => {}
            _ => {
                return Err(format!(
                    "{name} does not end with a message of the assistant"
                ));
            }
        }
        if count > MAX_MESSAGES {
            return Err(format!("{count} messages, more than {MAX_MESSAGES}"));
        }
        let context = prompt.iter().cloned().map(|message| Message {
            weight: Some(Weight(false)),
            ..message
        });
        let mut messages: Vec<Message> = context.chain(reply).collect();
        messages.iter_mut().for_each(Message::parse_arguments);
        Ok(Conversation {
            messages,
            tools: tools.clone(),
            location: location.to_owned(),
            unseen: Unseen::Files,
            difficulty: 0,
        })
    };
    let pair = Preference {
        prompt: prompt.len(),
        chosen: whole("chosen", chosen)?,
        rejected: whole("rejected", rejected)?,
    };
    match pair.chosen == pair.rejected {
        true => Err("chosen and rejected are the same".into()),
        false => Ok(pair),
    }
}

/// Splits off the messages that both conversations begin with.
fn split_prompt(
    mut chosen: Vec<Message>,
    mut rejected: Vec<Message>,
) -> (Vec<Message>, Vec<Message>, Vec<Message>) {
    let both = chosen.iter().zip(&rejected);
    let shared = both.take_while(|(one, other)| one == other).count();
    let replies = (chosen.split_off(shared), rejected.split_off(shared));
    (chosen, replies.0, replies.1)
}

impl Renderer {
    /// The tokens of the chosen and of the rejected conversation. Both begin with those of the prompt, as the model gets
    /// them.
    pub(crate) fn render_pair(&self, pair: &Preference) -> Result<[Rendered; 2], PairError> {
        let messages = &pair.chosen.messages[..pair.prompt];
        let prompt = self.prompt(Chat::new(messages, &pair.chosen.tools));
        let prompt = prompt.map_err(PairError::Render)?;
        let render = |name: &str, conversation: &Conversation| {
            let rendered = self.render(conversation).map_err(PairError::Render)?;
            if !rendered.ids.starts_with(&prompt) {
                return Err(PairError::Row(format!(
                    "the tokens of the prompt are not a prefix of those with the reply {name}, because the chat template \
                     or the tokenizer joins the end of the prompt with the beginning of the reply; remove white space \
                     at the beginning of {name}, or remove the row"
                )));
            }
            match rendered.trained() {
                0 => Err(PairError::Row(format!(
                    "{name} has no token that is trained"
                ))),
                _ => Ok(rendered),
            }
        };
        Ok([
            render("chosen", &pair.chosen)?,
            render("rejected", &pair.rejected)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(row: Value) -> Result<Preference, String> {
        match row {
            Value::Object(row) => of_row(row, "a.jsonl:1"),
            _ => panic!(),
        }
    }

    fn says(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    #[test]
    fn only_what_follows_the_prompt_is_trained() {
        let prompt = [says("user", "a"), says("assistant", "b"), says("user", "c")];
        let row = json!({"prompt": prompt, "chosen": [says("assistant", "d")], "rejected": [says("assistant", "e")]});
        let explicit = parse(row).unwrap();
        let trained = |one: &Conversation| -> Vec<bool> {
            one.messages.iter().map(Message::is_trained).collect()
        };
        assert_eq!(trained(&explicit.chosen), [false, false, false, true]);
        assert_eq!(
            explicit.rejected.messages[3],
            Message::new("assistant", "e")
        );
        let whole = |last: &str| [prompt.to_vec(), vec![says("assistant", last)]].concat();
        let implicit = parse(json!({"chosen": whole("d"), "rejected": whole("e")})).unwrap();
        assert_eq!(implicit, explicit);
    }

    #[test]
    fn rows_that_are_no_pairs_say_why() {
        let reply = [says("assistant", "d")];
        for (row, words) in [
            (json!({"chosen": reply}), "no column rejected"),
            (json!({"messages": reply}), "no column chosen"),
            (json!({"chosen": "d", "rejected": "e"}), "chosen is a text"),
            (
                json!({"prompt": [], "chosen": reply, "rejected": reply}),
                "are the same",
            ),
            (
                json!({"prompt": [], "chosen": reply, "rejected": [says("user", "x")]}),
                "rejected does not end with",
            ),
            (
                json!({"prompt": [3], "chosen": reply, "rejected": reply}),
                "prompt: ",
            ),
        ] {
            let error = parse(row).unwrap_err();
            assert!(error.contains(words), "{words} is missing in {error}");
        }
    }
}
