//! The values of a log as they are parsed: bounded, and without what is not shown.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use pybench_types::trajectory::Role;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{LogCall, LogLimit, LogMessage, LogSample, LogScore};

/// Maximum number of messages of a sample, and of its attachments.
const MAX_MESSAGES: usize = 1_000_000;
/// Maximum number of calls of a message.
const MAX_CALLS: usize = 10_000;
/// Maximum number of scores, and of models, of a sample.
const MAX_NAMED: usize = 1000;
/// Maximum number of bytes of attachments that are put into a sample: several texts may name the same one.
const MAX_ATTACHED: usize = 256 << 20;
/// What a text starts with whose content is an attachment.
const ATTACHMENT: &str = "attachment://";

/// What a log says of itself, in `header.json`, `_journal/start.json` or a `.json` log.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawHead {
    pub(super) version: u64,
    pub(super) status: String,
    pub(super) eval: RawSpec,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawSpec {
    pub(super) task: String,
    pub(super) model: String,
    pub(super) created: String,
}

/// A sample of a log.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct RawSample {
    id: JsonText,
    epoch: u64,
    uuid: Option<String>,
    input: Input,
    target: JsonText,
    messages: Option<Bounded<RawMessage, MAX_MESSAGES>>,
    scores: Option<BoundedMap<RawScore, MAX_NAMED>>,
    error: Option<RawError>,
    limit: Option<LogLimit>,
    total_time: Option<f64>,
    model_usage: Option<BoundedMap<RawUsage, MAX_NAMED>>,
    attachments: Option<BoundedMap<String, MAX_MESSAGES>>,
}

impl RawSample {
    /// The sample with its attachments in place.
    pub(super) fn finish(self) -> LogSample {
        self.finish_within(MAX_ATTACHED)
    }

    /// As [`RawSample::finish`], with at most so many bytes of attachments.
    pub(super) fn finish_within(self, mut left: usize) -> LogSample {
        let attachments = self.attachments.map(|all| all.0).unwrap_or_default();
        let messages = self.messages.map(|all| all.0).unwrap_or_default();
        let mut messages: Vec<LogMessage> = messages.into_iter().map(RawMessage::finish).collect();
        if messages.is_empty() {
            messages = self.input.0.into_iter().map(RawMessage::finish).collect();
        }
        for message in &mut messages {
            let texts = std::iter::once(&mut message.text).chain(&mut message.images);
            for text in texts.chain(message.calls.iter_mut().map(|call| &mut call.arguments)) {
                let found = text
                    .strip_prefix(ATTACHMENT)
                    .and_then(|id| attachments.get(id));
                if let Some(content) = found.filter(|content| content.len() <= left) {
                    left -= content.len();
                    content.clone_into(text);
                }
            }
        }
        let usage = self.model_usage.map(|all| all.0).unwrap_or_default();
        let sum =
            |count: fn(&RawUsage) -> u64| usage.values().map(count).fold(0, u64::saturating_add);
        let scores = self.scores.map(|all| all.0).unwrap_or_default();
        LogSample {
            id: self.id.0,
            epoch: self.epoch,
            uuid: self.uuid.unwrap_or_default(),
            target: self.target.0,
            messages,
            scores: scores
                .into_iter()
                .map(|(name, score)| score.finish(name))
                .collect(),
            error: self.error.map(|error| error.message).unwrap_or_default(),
            limit: self.limit,
            seconds: self.total_time.unwrap_or_default(),
            tokens_in: sum(|usage| usage.input_tokens),
            tokens_out: sum(|usage| usage.output_tokens),
        }
    }
}

/// The input of a sample: a text or messages.
#[derive(Debug, Default)]
struct Input(Vec<RawMessage>);

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Found;
        impl<'de> Visitor<'de> for Found {
            type Value = Input;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of messages")
            }

            fn visit_str<E>(self, text: &str) -> Result<Input, E> {
                let content = Content {
                    text: text.to_owned(),
                    ..Content::default()
                };
                Ok(Input(vec![RawMessage {
                    role: "user".to_owned(),
                    content,
                    ..RawMessage::default()
                }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Input, A::Error> {
                Ok(Input(bounded(items, MAX_MESSAGES)?))
            }

            fn visit_unit<E>(self) -> Result<Input, E> {
                Ok(Input::default())
            }
        }
        from.deserialize_any(Found)
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawMessage {
    role: String,
    content: Content,
    tool_calls: Option<Bounded<RawCall, MAX_CALLS>>,
    /// The call that a tool answers; a list in messages of users.
    tool_call_id: JsonText,
    error: Option<RawError>,
}

impl RawMessage {
    fn finish(self) -> LogMessage {
        let calls = self.tool_calls.map(|all| all.0).unwrap_or_default();
        let call = |call: RawCall| LogCall {
            id: call.id,
            function: call.function,
            arguments: call.arguments.0,
        };
        LogMessage {
            role: match &*self.role {
                "system" => Role::System,
                "assistant" => Role::Assistant,
                "tool" => Role::Tool,
                _ => Role::User,
            },
            text: self.content.text,
            images: self.content.images,
            calls: calls.into_iter().map(call).collect(),
            answers: self.tool_call_id.0,
            error: self.error.map(|error| error.message).unwrap_or_default(),
        }
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawCall {
    id: String,
    function: String,
    arguments: JsonText,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawScore {
    value: JsonText,
    answer: Option<String>,
    explanation: Option<String>,
}

impl RawScore {
    fn finish(self, name: String) -> LogScore {
        LogScore {
            passed: match &*self.value.0 {
                "C" | "true" | "1" | "1.0" => Some(true),
                "I" | "N" | "false" | "0" | "0.0" => Some(false),
                _ => None,
            },
            value: self.value.0,
            answer: self.answer.unwrap_or_default(),
            explanation: self.explanation.unwrap_or_default(),
            name,
        }
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawError {
    message: String,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawUsage {
    input_tokens: u64,
    output_tokens: u64,
}

/// The content of a message: a text, or parts of several kinds.
#[derive(Debug, Default)]
struct Content {
    text: String,
    /// Data URLs, or references to attachments.
    images: Vec<String>,
}

/// A part of a content.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    reasoning: Option<String>,
    image: Option<String>,
}

impl Content {
    fn add(&mut self, part: RawPart) {
        let text = match &*part.kind {
            "text" => part.text.unwrap_or_default(),
            "reasoning" => part.reasoning.unwrap_or_default(),
            "image" => return self.images.extend(part.image),
            other => format!("[{other}: not shown]"),
        };
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.text.push_str(&text);
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Found;
        impl<'de> Visitor<'de> for Found {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content {
                    text: text.to_owned(),
                    ..Content::default()
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
                let mut content = Content::default();
                while let Some(part) = items.next_element()? {
                    content.add(part);
                }
                Ok(content)
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::default())
            }
        }
        from.deserialize_any(Found)
    }
}

/// A text as it is, and any other value as its JSON; empty for `null`.
#[derive(Debug, Default)]
struct JsonText(String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        match raw.get() {
            "null" => Ok(Self::default()),
            text if text.starts_with('"') => {
                let text = serde_json::from_str(text);
                text.map(Self).map_err(D::Error::custom)
            }
            other => Ok(Self(other.to_owned())),
        }
    }
}

/// A list of at most `MAX` items.
#[derive(Debug)]
struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Vec<T>, A::Error> {
                bounded(items, MAX)
            }
        }
        from.deserialize_seq(Items::<T, MAX>(PhantomData)).map(Self)
    }
}

/// An object of at most `MAX` keys.
#[derive(Debug)]
struct BoundedMap<T, const MAX: usize>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedMap<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
            type Value = BTreeMap<String, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut found = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    if found.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} keys")));
                    }
                    found.insert(key, value);
                }
                Ok(found)
            }
        }
        from.deserialize_map(Entries::<T, MAX>(PhantomData))
            .map(Self)
    }
}

fn bounded<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    mut items: A,
    max: usize,
) -> Result<Vec<T>, A::Error> {
    let mut found = Vec::new();
    while let Some(item) = items.next_element()? {
        if found.len() == max {
            return Err(A::Error::custom(format_args!("more than {max} items")));
        }
        found.push(item);
    }
    Ok(found)
}

/// A `.json` log: its head, and each sample as it is read.
pub(super) struct WholeLog<'a> {
    pub(super) head: RawHead,
    pub(super) on_sample: &'a mut dyn FnMut(&RawHead, RawSample) -> Result<(), String>,
}

impl<'de> Visitor<'de> for WholeLog<'_> {
    type Value = RawHead;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object of a log")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<RawHead, A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            match &*key {
                "version" => self.head.version = entries.next_value()?,
                "status" => self.head.status = entries.next_value()?,
                "eval" => self.head.eval = entries.next_value()?,
                "samples" => entries.next_value_seed(Samples(&mut self))?,
                _ => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self.head)
    }
}

/// The samples of a `.json` log, one at a time.
struct Samples<'a, 'b>(&'a mut WholeLog<'b>);

impl<'de> serde::de::DeserializeSeed<'de> for Samples<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Samples<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of samples")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let WholeLog { head, on_sample } = self.0;
        while let Some(sample) = items.next_element()? {
            (*on_sample)(head, sample).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
