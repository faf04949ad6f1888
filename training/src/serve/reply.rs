//! Response bodies and streams of chats and completions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::engine::{FinishReason, ReplyEvent, TokenLogprob};
use super::error::ApiError;
use super::tools::{ReplyPiece, ReplyReader};
use super::vocabulary::Vocabulary;

/// The two endpoints differ only in the format of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completion,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) endpoint: Endpoint,
    pub(super) model: String,
    pub(super) vocabulary: Arc<Vocabulary>,
    pub(super) id: String,
    /// One for each choice.
    pub(super) readers: Vec<ReplyReader>,
    /// Sum over all prompts.
    pub(super) prompt_tokens: usize,
    pub(super) stream_usage: bool,
    pub(super) events: UnboundedReceiver<(usize, ReplyEvent)>,
}

#[derive(Clone, Debug, Default)]
struct Choice {
    text: String,
    calls: Vec<Value>,
    logprob: Vec<TokenLogprob>,
    finish: Option<&'static str>,
}

impl Choice {
    fn add(&mut self, pieces: Vec<ReplyPiece>) {
        for piece in pieces {
            match piece {
                ReplyPiece::Text(text) => self.text.push_str(&text),
                ReplyPiece::Call(call) => self.calls.push(call),
            }
        }
    }

    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.clone().into();
            if self.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        message
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct UsageCounts {
    tokens: usize,
    cached: usize,
    done: usize,
}

impl UsageCounts {
    fn add(&mut self, tokens: usize, cached: usize) {
        self.tokens += tokens;
        self.cached += cached;
        self.done += 1;
    }
}

const ENGINE_STOPPED: &str = "the engine has stopped";

impl PendingReply {
    /// Waits for all choices and returns the response body.
    pub(super) async fn whole(mut self) -> Result<Value, ApiError> {
        let mut choices = vec![Choice::default(); self.readers.len()];
        let mut counts = UsageCounts::default();
        while counts.done < self.readers.len() {
            let (index, event) = self
                .events
                .recv()
                .await
                .ok_or_else(|| ApiError::internal(ENGINE_STOPPED))?;
            let (choice, reader) = (&mut choices[index], &mut self.readers[index]);
            match event {
                ReplyEvent::Delta { text, logprob } => {
                    choice.add(reader.push(&text));
                    choice.logprob.extend(logprob);
                }
                ReplyEvent::Done {
                    finish,
                    tokens,
                    cached,
                } => {
                    choice.add(reader.finish());
                    choice.finish = Some(finish_reason(finish, reader));
                    counts.add(tokens, cached);
                }
                ReplyEvent::Failed(reason) => return Err(ApiError::internal(reason)),
            }
        }
        let of = |(index, choice): (usize, &Choice)| {
            let logprob = self.logprob(&choice.logprob);
            match self.endpoint {
                Endpoint::Chat => json!({
                    "index": index, "finish_reason": choice.finish, "logprobs": logprob,
                    "message": choice.message(),
                }),
                Endpoint::Completion => json!({
                    "index": index, "finish_reason": choice.finish, "logprobs": logprob,
                    "text": choice.text,
                }),
            }
        };
        let listed: Vec<Value> = choices.iter().enumerate().map(of).collect();
        let mut body = self.envelope(listed, false);
        body["usage"] = self.usage(counts);
        Ok(body)
    }

    /// Streams events as they arrive. If the client disconnects, the receiver is dropped.
    pub(super) fn stream(self) -> Response {
        let first: VecDeque<Value> = match self.endpoint {
            Endpoint::Chat => (0..self.readers.len())
                .map(|index| {
                    self.chat_chunk(
                        index,
                        json!({"role": "assistant", "content": ""}),
                        None,
                        None,
                    )
                })
                .collect(),
            Endpoint::Completion => VecDeque::new(),
        };
        let state = Streaming {
            ready: first.iter().map(frame).collect(),
            pending: self,
            counts: UsageCounts::default(),
            ended: false,
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
        let object = match (self.endpoint, chunk) {
            (Endpoint::Chat, false) => "chat.completion",
            (Endpoint::Chat, true) => "chat.completion.chunk",
            (Endpoint::Completion, _) => "text_completion",
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
        logprob: Option<Value>,
        finish: Option<&str>,
    ) -> Value {
        let choice = json!({
            "index": index, "delta": delta, "logprobs": logprob, "finish_reason": finish,
        });
        self.envelope(vec![choice], true)
    }

    fn piece(&self, index: usize, text: &str, logprob: Option<TokenLogprob>) -> Value {
        let logprob = logprob.map(|one| self.logprob(&[one]));
        match self.endpoint {
            Endpoint::Chat => self.chat_chunk(index, json!({"content": text}), logprob, None),
            Endpoint::Completion => {
                let choice = json!({
                    "index": index, "text": text, "logprobs": logprob, "finish_reason": null,
                });
                self.envelope(vec![choice], true)
            }
        }
    }

    /// A call of a tool, which is sent as a whole.
    fn call(&self, index: usize, number: usize, mut call: Value) -> Value {
        call["index"] = number.into();
        self.chat_chunk(index, json!({"tool_calls": [call]}), None, None)
    }

    fn last(&self, index: usize, finish: &str) -> Value {
        match self.endpoint {
            Endpoint::Chat => self.chat_chunk(index, json!({}), None, Some(finish)),
            Endpoint::Completion => {
                let choice = json!({
                    "index": index, "text": "", "logprobs": null, "finish_reason": finish,
                });
                self.envelope(vec![choice], true)
            }
        }
    }

    fn usage(&self, counts: UsageCounts) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": counts.tokens,
            "total_tokens": self.prompt_tokens + counts.tokens,
            "prompt_tokens_details": {"cached_tokens": counts.cached},
        })
    }

    /// Tokens with their alternatives; null if none were requested.
    fn logprob(&self, tokens: &[TokenLogprob]) -> Value {
        if tokens.is_empty() {
            return Value::Null;
        }
        let text = |id: u32| String::from_utf8_lossy(self.vocabulary.bytes(id)).into_owned();
        match self.endpoint {
            Endpoint::Chat => {
                let one = |id: u32, log: f32| json!({"token": text(id), "logprob": log, "bytes": self.vocabulary.bytes(id)});
                let token = |logprob: &TokenLogprob| {
                    let mut token = one(logprob.id, logprob.logprob);
                    let top = logprob.top.iter().map(|&(id, log)| one(id, log));
                    token["top_logprobs"] = top.collect();
                    token
                };
                json!({"content": tokens.iter().map(token).collect::<Vec<_>>(), "refusal": null})
            }
            Endpoint::Completion => {
                let top = |logprob: &TokenLogprob| {
                    let pairs = logprob.top.iter().map(|&(id, log)| (text(id), log.into()));
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
                    "token_logprobs": tokens.iter().map(|one| one.logprob).collect::<Vec<_>>(),
                    "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
                })
            }
        }
    }
}

struct Streaming {
    ready: VecDeque<Bytes>,
    pending: PendingReply,
    counts: UsageCounts,
    ended: bool,
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if self.counts.done == self.pending.readers.len() {
                self.end();
                continue;
            }
            match self.pending.events.recv().await {
                Some((index, event)) => self.take(index, event),
                None => self.fail(ENGINE_STOPPED.into()),
            }
        }
    }

    fn take(&mut self, index: usize, event: ReplyEvent) {
        match event {
            ReplyEvent::Delta { text, logprob } => {
                let pieces = self.pending.readers[index].push(&text);
                self.send(index, pieces, logprob);
            }
            ReplyEvent::Done {
                finish,
                tokens,
                cached,
            } => {
                let pieces = self.pending.readers[index].finish();
                self.send(index, pieces, None);
                self.counts.add(tokens, cached);
                let finish = finish_reason(finish, &self.pending.readers[index]);
                self.ready
                    .push_back(frame(&self.pending.last(index, finish)));
            }
            ReplyEvent::Failed(reason) => self.fail(reason),
        }
    }

    /// Sends the pieces of a reply. The token belongs to the first; an incomplete character has no text yet.
    fn send(&mut self, index: usize, pieces: Vec<ReplyPiece>, mut logprob: Option<TokenLogprob>) {
        let calls = pieces.iter().filter(|p| matches!(p, ReplyPiece::Call(_)));
        let mut number = self.pending.readers[index].calls - calls.count();
        for piece in pieces {
            let chunk = match piece {
                ReplyPiece::Text(text) => self.pending.piece(index, &text, logprob.take()),
                ReplyPiece::Call(call) => {
                    number += 1;
                    self.pending.call(index, number - 1, call)
                }
            };
            self.ready.push_back(frame(&chunk));
        }
        if logprob.is_some() {
            let chunk = self.pending.piece(index, "", logprob);
            self.ready.push_back(frame(&chunk));
        }
    }

    fn fail(&mut self, reason: String) {
        self.ready
            .push_back(frame(&ApiError::internal(reason).body()));
        self.ended = true;
    }

    fn end(&mut self) {
        if self.pending.stream_usage {
            let mut chunk = self.pending.envelope(vec![], true);
            chunk["usage"] = self.pending.usage(self.counts);
            self.ready.push_back(frame(&chunk));
        }
        self.ready
            .push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        self.ended = true;
    }
}

fn finish_reason(finish: FinishReason, reader: &ReplyReader) -> &'static str {
    match (finish, reader.calls) {
        (FinishReason::Stop, 1..) => "tool_calls",
        _ => finish.name(),
    }
}

fn frame(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Unix time in seconds.
pub(super) fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}
