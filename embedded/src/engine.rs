//! Runs the model with llama.cpp, one request at a time.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;

use crate::prompt::PromptBuilder;
use crate::protocol::{Answer, Ask, Hello, Reply};
use crate::reply_stream::{Listener, ReplyStream};
use crate::slots::{Assignment, Slots};

/// Tokens per call of `llama_decode`.
const BATCH_TOKENS: usize = 512;
/// The largest context that is used without `--context`.
const MAX_DEFAULT_CONTEXT: u32 = 8_192;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum tokens of prompt and reply. Default: the model's own, at most 8,192.
    pub context: Option<u32>,
    /// Conversations whose keys and values stay cached.
    pub slots: u32,
    pub threads: u32,
}

/// A loaded model file.
pub struct LoadedModel {
    model: LlamaModel,
}

pub struct Engine<'a> {
    model: &'a LlamaModel,
    context: LlamaContext<'a>,
    prompts: PromptBuilder,
    slots: Slots,
    /// Maximum tokens of one conversation.
    max_tokens: u32,
}

enum ReplyError {
    Refused(String),
    Failed(String),
    /// The reply is no longer wanted. What was computed stays cached.
    Stopped,
}

fn failed(error: impl std::fmt::Display) -> ReplyError {
    ReplyError::Failed(error.to_string())
}

/// llama.cpp, initialized once per process.
fn backend() -> Result<&'static LlamaBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    let start = || {
        let mut backend = LlamaBackend::init().ok()?;
        backend.void_logs();
        Some(backend)
    };
    let backend = BACKEND.get_or_init(start).as_ref();
    backend.context("llama.cpp could not be initialized")
}

impl LoadedModel {
    /// # Errors
    /// If llama.cpp cannot load the file.
    pub fn open(path: &Path) -> Result<Self> {
        let model = LlamaModel::load_from_file(backend()?, path, &LlamaModelParams::default());
        let model = model.with_context(|| {
            format!(
                "{}: llama.cpp cannot load this file as a model",
                path.display()
            )
        })?;
        Ok(Self { model })
    }

    /// Allocates the context.
    ///
    /// # Errors
    /// If the model has no chat template, or memory for the context is missing.
    pub fn engine(&self, options: &Options) -> Result<Engine<'_>> {
        let trained = self.model.n_ctx_train();
        let max_tokens = options.context.unwrap_or(trained.min(MAX_DEFAULT_CONTEXT));
        if max_tokens == 0 || max_tokens > trained {
            bail!("--context {max_tokens}: this model supports 1 to {trained} tokens");
        }
        let slots = options.slots.clamp(1, 64);
        let threads = i32::try_from(options.threads).unwrap_or(1).max(1);
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(max_tokens.saturating_mul(slots)))
            .with_n_batch(BATCH_TOKENS as u32)
            .with_n_seq_max(slots)
            // One cache for all conversations, so that they can share a prefix.
            .with_kv_unified(true)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let context = self.model.new_context(backend()?, params);
        Ok(Engine {
            model: &self.model,
            context: context.context("llama.cpp could not allocate the context")?,
            prompts: PromptBuilder::new(&self.model)?,
            slots: Slots::new(slots as usize),
            max_tokens,
        })
    }
}

impl Engine<'_> {
    pub fn hello(&self) -> Hello {
        let value = |key| self.model.meta_val_str(key).ok();
        let name = value("general.name").or_else(|| value("general.architecture"));
        Hello {
            model: name.unwrap_or_default(),
            context: self.max_tokens,
            streams: true,
        }
    }

    /// Answers a request. The listener gets the text if the request wants it streamed, and can stop the reply in any case.
    pub fn answer(&mut self, ask: &Ask, listener: &mut dyn Listener) -> Answer {
        match self.reply(ask, listener) {
            Ok(reply) => Answer::Reply(reply),
            Err(ReplyError::Refused(text)) => Answer::Refused(text),
            Err(ReplyError::Failed(text)) => Answer::Failed(text),
            Err(ReplyError::Stopped) => Answer::Failed("the request was withdrawn".to_owned()),
        }
    }

    fn reply(&mut self, ask: &Ask, listener: &mut dyn Listener) -> Result<Reply, ReplyError> {
        let prompt = self.prompts.tokens(&self.model.vocab(), &ask.messages);
        let prompt = prompt.map_err(|error| ReplyError::Refused(error.to_string()))?;
        let room = (self.max_tokens as usize).saturating_sub(prompt.len());
        if room == 0 || prompt.is_empty() {
            return Err(ReplyError::Refused(format!(
                "the prompt has {} tokens, which leaves no room for a reply in the context of {} tokens",
                prompt.len(),
                self.max_tokens
            )));
        }
        let ids: Vec<i32> = prompt.iter().map(|token| token.0).collect();
        let assignment = self.slots.assign(&ids);
        let slot = assignment.slot;
        let reused = self.reuse_prefix(assignment);
        let generated = self
            .compute(slot, reused, &prompt[reused..], listener)
            .and_then(|()| self.generate(ask, slot, prompt.len(), room, listener));
        if matches!(generated, Err(ReplyError::Failed(_))) {
            self.slots.clear(slot);
        }
        let (content, completion_tokens, truncated) = generated?;
        Ok(Reply {
            content,
            prompt_tokens: prompt.len() as u64,
            reused_tokens: reused as u64,
            completion_tokens,
            truncated,
        })
    }

    /// Reduces the cache of the slot to the shared prefix. Returns the number of tokens that it then holds.
    fn reuse_prefix(&mut self, assignment: Assignment) -> usize {
        let (slot, source) = (assignment.slot as u32, assignment.source as u32);
        let reused = assignment.reused as u32;
        let kept = match slot == source {
            true => self
                .context
                .clear_kv_cache_seq(Some(slot), Some(reused), None),
            false => self.context.clear_kv_cache_seq(Some(slot), None, None),
        };
        let copied = match (slot == source, reused) {
            (true, _) | (_, 0) => Ok(()),
            (false, _) => {
                let (from, to) = (source as i32, slot as i32);
                self.context
                    .copy_kv_cache_seq(from, to, Some(0), Some(reused))
            }
        };
        // Recurrent models have a state instead of keys and values, which cannot be truncated.
        if matches!(kept, Ok(true)) && copied.is_ok() {
            return assignment.reused;
        }
        let _ = self.context.clear_kv_cache_seq(Some(slot), None, None);
        self.slots.clear(assignment.slot);
        0
    }

    /// Computes tokens that follow the `done` tokens of the slot; then the next token can be sampled.
    fn compute(
        &mut self,
        slot: usize,
        done: usize,
        tokens: &[LlamaToken],
        listener: &mut dyn Listener,
    ) -> Result<(), ReplyError> {
        let mut batch = LlamaBatch::new(BATCH_TOKENS, 1);
        for (number, chunk) in tokens.chunks(BATCH_TOKENS).enumerate() {
            if listener.is_stopped() {
                return Err(ReplyError::Stopped);
            }
            batch.clear();
            let start = done + number * BATCH_TOKENS;
            for (i, token) in chunk.iter().enumerate() {
                let last = number * BATCH_TOKENS + i + 1 == tokens.len();
                let position = i32::try_from(start + i).map_err(failed)?;
                batch
                    .add(*token, position, &[slot as i32], last)
                    .map_err(failed)?;
            }
            self.context.decode(&mut batch).map_err(failed)?;
            let ids: Vec<i32> = chunk.iter().map(|token| token.0).collect();
            self.slots.record_computed(slot, &ids);
        }
        Ok(())
    }

    /// Samples tokens until the model ends its turn, a stop string appears, or the limit is reached.
    fn generate(
        &mut self,
        ask: &Ask,
        slot: usize,
        prompt: usize,
        room: usize,
        listener: &mut dyn Listener,
    ) -> Result<(String, u64, bool), ReplyError> {
        let mut sampler = sampler(ask);
        let limit = (ask.max_tokens as usize).clamp(1, room);
        let mut stream = ask.stream.then(|| ReplyStream::new(&ask.stop));
        let mut bytes = Vec::<u8>::new();
        let (mut count, mut truncated) = (0, true);
        while count < limit {
            count += 1;
            let token = sampler.sample(&self.context, -1);
            let vocab = self.model.vocab();
            if vocab.is_eog(token) {
                truncated = false;
                break;
            }
            let before = bytes.len();
            match self.prompts.shown(token) {
                Some(text) => bytes.extend(text.as_bytes()),
                None => bytes.extend(vocab.token_to_piece(token, false, None)),
            }
            if let Some(end) = find_stop(&bytes, before, &ask.stop) {
                bytes.truncate(end);
                truncated = false;
                break;
            }
            if let Some(stream) = &mut stream {
                stream.grow(&bytes, listener);
            }
            if count < limit {
                self.compute(slot, prompt + count - 1, &[token], listener)?;
            }
        }
        if let Some(stream) = &mut stream {
            stream.finish(&bytes, listener);
        }
        Ok((text(&bytes), count as u64, truncated))
    }
}

/// Temperature is applied before top-p, as in other inference engines.
fn sampler(ask: &Ask) -> LlamaSampler {
    if ask.temperature <= 0.0 {
        return LlamaSampler::greedy();
    }
    LlamaSampler::chain_simple([
        LlamaSampler::temp(ask.temperature),
        LlamaSampler::top_p(ask.top_p, 1),
        LlamaSampler::dist(ask.seed),
    ])
}

/// The start of the first stop string that ends after position `before`.
fn find_stop(bytes: &[u8], before: usize, stops: &[String]) -> Option<usize> {
    let found = stops
        .iter()
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| {
            let from = before.saturating_sub(stop.len() - 1);
            let mut windows = bytes[from..].windows(stop.len());
            Some(from + windows.position(|window| window == stop.as_bytes())?)
        });
    found.min()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
