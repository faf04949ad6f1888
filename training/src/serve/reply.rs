//! What clients get: whole replies and streams, of chats and of completions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::engine::{Event, Likely};
use super::error::ApiError;
use super::vocabulary::Vocabulary;

/// Chats and completions differ in names only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Completion,
}

/// A request that the engine works on.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) shape: Shape,
    pub(super) model: String,
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) id: String,
    pub(super) choices: usize,
    /// Tokens of all prompts.
    pub(super) prompt_tokens: usize,
    pub(super) stream_usage: bool,
    pub(super) events: UnboundedReceiver<(usize, Event)>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    text: String,
    likely: Vec<Likely>,
    finish: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tokens: usize,
    cached: usize,
    done: usize,
}

impl Counts {
    fn add(&mut self, tokens: usize, cached: usize) {
        self.tokens += tokens;
        self.cached += cached;
        self.done += 1;
    }
}

const GONE: &str = "the engine stopped";

impl Pending {
    /// Waits for all choices.
    pub(super) async fn whole(mut self) -> Result<Value, ApiError> {
        let mut choices = vec![Choice::default(); self.choices];
        let mut counts = Counts::default();
        while counts.done < self.choices {
            let (index, event) = self
                .events
                .recv()
                .await
                .ok_or_else(|| ApiError::ours(GONE))?;
            let choice = &mut choices[index];
            match event {
                Event::Piece { text, likely } => {
                    choice.text.push_str(&text);
                    choice.likely.extend(likely);
                }
                Event::Done {
                    finish,
                    tokens,
                    cached,
                } => {
                    choice.finish = Some(finish.name());
                    counts.add(tokens, cached);
                }
                Event::Failed(reason) => return Err(ApiError::ours(reason)),
            }
        }
        let of = |(index, choice): (usize, &Choice)| {
            let likely = self.likely(&choice.likely);
            match self.shape {
                Shape::Chat => json!({
                    "index": index, "finish_reason": choice.finish, "logprobs": likely,
                    "message": {"role": "assistant", "content": choice.text, "refusal": null},
                }),
                Shape::Completion => json!({
                    "index": index, "finish_reason": choice.finish, "logprobs": likely,
                    "text": choice.text,
                }),
            }
        };
        let listed: Vec<Value> = choices.iter().enumerate().map(of).collect();
        let mut body = self.envelope(listed, false);
        body["usage"] = self.usage(counts);
        Ok(body)
    }

    /// Sends events as they come. A client that leaves drops this, and so the receiver.
    pub(super) fn stream(self) -> Response {
        let first: VecDeque<Value> = match self.shape {
            Shape::Chat => (0..self.choices)
                .map(|index| {
                    self.chat_chunk(
                        index,
                        json!({"role": "assistant", "content": ""}),
                        None,
                        None,
                    )
                })
                .collect(),
            Shape::Completion => VecDeque::new(),
        };
        let state = Streaming {
            ready: first.iter().map(frame).collect(),
            pending: self,
            counts: Counts::default(),
            over: false,
        };
        let frames = stream::unfold(state, |mut state| async move {
            let frame = state.next().await?;
            Some((Ok::<_, std::convert::Infallible>(frame), state))
        });
        let headers = [
            (CONTENT_TYPE, "text/event-stream"),
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, Body::from_stream(frames)).into_response()
    }

    fn envelope(&self, choices: Vec<Value>, chunk: bool) -> Value {
        let object = match (self.shape, chunk) {
            (Shape::Chat, false) => "chat.completion",
            (Shape::Chat, true) => "chat.completion.chunk",
            (Shape::Completion, _) => "text_completion",
        };
        json!({
            "id": self.id, "object": object, "created": seconds(), "model": self.model,
            "choices": choices,
        })
    }

    fn chat_chunk(
        &self,
        index: usize,
        delta: Value,
        likely: Option<Value>,
        finish: Option<&str>,
    ) -> Value {
        let choice = json!({
            "index": index, "delta": delta, "logprobs": likely, "finish_reason": finish,
        });
        self.envelope(vec![choice], true)
    }

    fn piece(&self, index: usize, text: &str, likely: Option<Likely>) -> Value {
        let likely = likely.map(|one| self.likely(&[one]));
        match self.shape {
            Shape::Chat => self.chat_chunk(index, json!({"content": text}), likely, None),
            Shape::Completion => {
                let choice = json!({
                    "index": index, "text": text, "logprobs": likely, "finish_reason": null,
                });
                self.envelope(vec![choice], true)
            }
        }
    }

    fn last(&self, index: usize, finish: &str) -> Value {
        match self.shape {
            Shape::Chat => self.chat_chunk(index, json!({}), None, Some(finish)),
            Shape::Completion => {
                let choice = json!({
                    "index": index, "text": "", "logprobs": null, "finish_reason": finish,
                });
                self.envelope(vec![choice], true)
            }
        }
    }

    fn usage(&self, counts: Counts) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": counts.tokens,
            "total_tokens": self.prompt_tokens + counts.tokens,
            "prompt_tokens_details": {"cached_tokens": counts.cached},
        })
    }

    /// Tokens with their alternatives; null where none were asked for.
    fn likely(&self, tokens: &[Likely]) -> Value {
        if tokens.is_empty() {
            return Value::Null;
        }
        let text = |id: u32| String::from_utf8_lossy(self.vocabulary.bytes(id)).into_owned();
        match self.shape {
            Shape::Chat => {
                let one = |id: u32, log: f32| json!({"token": text(id), "logprob": log, "bytes": self.vocabulary.bytes(id)});
                let token = |likely: &Likely| {
                    let mut token = one(likely.id, likely.log_probability);
                    let top = likely.top.iter().map(|&(id, log)| one(id, log));
                    token["top_logprobs"] = top.collect();
                    token
                };
                json!({"content": tokens.iter().map(token).collect::<Vec<_>>(), "refusal": null})
            }
            Shape::Completion => {
                let top = |likely: &Likely| {
                    let pairs = likely.top.iter().map(|&(id, log)| (text(id), log.into()));
                    Value::Object(pairs.collect())
                };
                let texts: Vec<String> = tokens.iter().map(|one| text(one.id)).collect();
                let offsets = texts.iter().scan(0, |end, text| {
                    let start = *end;
                    *end += text.chars().count();
                    Some(start)
                });
                json!({
                    "text_offset": offsets.collect::<Vec<_>>(),
                    "tokens": texts,
                    "token_logprobs": tokens.iter().map(|one| one.log_probability).collect::<Vec<_>>(),
                    "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
                })
            }
        }
    }
}

struct Streaming {
    ready: VecDeque<Bytes>,
    pending: Pending,
    counts: Counts,
    over: bool,
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.over {
                return None;
            }
            if self.counts.done == self.pending.choices {
                self.end();
                continue;
            }
            match self.pending.events.recv().await {
                Some((index, event)) => self.take(index, event),
                None => self.fail(GONE.into()),
            }
        }
    }

    fn take(&mut self, index: usize, event: Event) {
        match event {
            // Half a letter says nothing yet.
            Event::Piece { text, likely } if text.is_empty() && likely.is_none() => {}
            Event::Piece { text, likely } => {
                self.ready
                    .push_back(frame(&self.pending.piece(index, &text, likely)));
            }
            Event::Done {
                finish,
                tokens,
                cached,
            } => {
                self.counts.add(tokens, cached);
                self.ready
                    .push_back(frame(&self.pending.last(index, finish.name())));
            }
            Event::Failed(reason) => self.fail(reason),
        }
    }

    fn fail(&mut self, reason: String) {
        self.ready.push_back(frame(&ApiError::ours(reason).body()));
        self.over = true;
    }

    fn end(&mut self) {
        if self.pending.stream_usage {
            let mut chunk = self.pending.envelope(vec![], true);
            chunk["usage"] = self.pending.usage(self.counts);
            self.ready.push_back(frame(&chunk));
        }
        self.ready
            .push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.over = true;
    }
}

fn frame(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}
