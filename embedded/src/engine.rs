//! The model: llama.cpp, one question after the other.

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

use crate::prompt::Prompts;
use crate::slots::Slots;
use crate::{Answer, Ask, Hello, Reply};

/// Tokens computed at a time.
const BATCH: usize = 512;
/// Most tokens of a context that is not asked for.
const USUAL_CONTEXT: u32 = 8_192;

/// How a model is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most tokens of prompt and reply; the model's own, at most 8,192, otherwise.
    pub context: Option<u32>,
    /// Conversations whose keys and values are kept.
    pub slots: u32,
    /// Threads.
    pub threads: u32,
}

/// A model file, loaded.
pub struct Loaded {
    model: LlamaModel,
}

/// A model that answers.
pub struct Engine<'a> {
    model: &'a LlamaModel,
    context: LlamaContext<'a>,
    prompts: Prompts,
    slots: Slots,
    /// Tokens of one conversation.
    most: u32,
}

/// Why a question has no reply.
enum Trouble {
    Refused(String),
    Failed(String),
}

fn failed(error: impl std::fmt::Display) -> Trouble {
    Trouble::Failed(error.to_string())
}

/// llama.cpp, started once for the process.
fn backend() -> Result<&'static LlamaBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    let start = || {
        let mut backend = LlamaBackend::init().ok()?;
        backend.void_logs();
        Some(backend)
    };
    let backend = BACKEND.get_or_init(start).as_ref();
    backend.context("llama.cpp could not be started")
}

impl Loaded {
    /// Reads the file.
    ///
    /// # Errors
    /// Where it is no model that llama.cpp knows.
    pub fn open(path: &Path) -> Result<Self> {
        let model = LlamaModel::load_from_file(backend()?, path, &LlamaModelParams::default());
        let model =
            model.with_context(|| format!("{}: no model that can be loaded", path.display()))?;
        Ok(Self { model })
    }

    /// Room for conversations.
    ///
    /// # Errors
    /// Where the model has no chat template, or there is no memory for the context.
    pub fn engine(&self, options: &Options) -> Result<Engine<'_>> {
        let trained = self.model.n_ctx_train();
        let most = options.context.unwrap_or(trained.min(USUAL_CONTEXT));
        if most == 0 || most > trained {
            bail!("a context of {most} tokens: the model was trained on {trained}");
        }
        let slots = options.slots.clamp(1, 64);
        let threads = i32::try_from(options.threads).unwrap_or(1).max(1);
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(most.saturating_mul(slots)))
            .with_n_batch(BATCH as u32)
            .with_n_seq_max(slots)
            // One store for all conversations, so that a beginning can be shared.
            .with_kv_unified(true)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let context = self.model.new_context(backend()?, params);
        Ok(Engine {
            model: &self.model,
            context: context.context("no context")?,
            prompts: Prompts::of(&self.model)?,
            slots: Slots::new(slots as usize),
            most,
        })
    }
}

impl Engine<'_> {
    /// What the process says first.
    pub fn hello(&self) -> Hello {
        let value = |key| self.model.meta_val_str(key).ok();
        let name = value("general.name").or_else(|| value("general.architecture"));
        Hello {
            model: name.unwrap_or_default(),
            context: self.most,
        }
    }

    /// The answer to a question.
    pub fn answer(&mut self, ask: &Ask) -> Answer {
        match self.reply(ask) {
            Ok(reply) => Answer::Reply(reply),
            Err(Trouble::Refused(text)) => Answer::Refused(text),
            Err(Trouble::Failed(text)) => Answer::Failed(text),
        }
    }

    fn reply(&mut self, ask: &Ask) -> Result<Reply, Trouble> {
        let prompt = self.prompts.tokens(&self.model.vocab(), &ask.messages);
        let prompt = prompt.map_err(|error| Trouble::Refused(error.to_string()))?;
        let room = (self.most as usize).saturating_sub(prompt.len());
        if room == 0 || prompt.is_empty() {
            return Err(Trouble::Refused(format!(
                "the conversation takes {} tokens of a context of {}",
                prompt.len(),
                self.most
            )));
        }
        let ids: Vec<i32> = prompt.iter().map(|token| token.0).collect();
        let place = self.slots.admit(&ids);
        let reused = self.share(place);
        let end = self
            .compute(place.slot, reused, &prompt[reused..])
            .and_then(|()| self.generate(ask, place.slot, prompt.len(), room));
        if end.is_err() {
            self.slots.forget(place.slot);
        }
        let (content, completion_tokens, truncated) = end?;
        Ok(Reply {
            content,
            prompt_tokens: prompt.len() as u64,
            reused_tokens: reused as u64,
            completion_tokens,
            truncated,
        })
    }

    /// Leaves in the place what it shares with the prompt; how many tokens that is.
    fn share(&mut self, place: crate::slots::Place) -> usize {
        let (slot, from) = (place.slot as u32, place.from as u32);
        let reused = place.reused as u32;
        let kept = match slot == from {
            true => self
                .context
                .clear_kv_cache_seq(Some(slot), Some(reused), None),
            false => self.context.clear_kv_cache_seq(Some(slot), None, None),
        };
        let copied = match (slot == from, reused) {
            (true, _) | (_, 0) => Ok(()),
            (false, _) => {
                let (from, to) = (from as i32, slot as i32);
                self.context
                    .copy_kv_cache_seq(from, to, Some(0), Some(reused))
            }
        };
        // Models with a state instead of keys and values cannot forget a part.
        if matches!(kept, Ok(true)) && copied.is_ok() {
            return place.reused;
        }
        let _ = self.context.clear_kv_cache_seq(Some(slot), None, None);
        self.slots.forget(place.slot);
        0
    }

    /// Computes tokens that follow `done` others in that place; what follows the last can then be drawn.
    fn compute(&mut self, slot: usize, done: usize, tokens: &[LlamaToken]) -> Result<(), Trouble> {
        let mut batch = LlamaBatch::new(BATCH, 1);
        for (number, chunk) in tokens.chunks(BATCH).enumerate() {
            batch.clear();
            let start = done + number * BATCH;
            for (i, token) in chunk.iter().enumerate() {
                let last = number * BATCH + i + 1 == tokens.len();
                let position = i32::try_from(start + i).map_err(failed)?;
                batch
                    .add(*token, position, &[slot as i32], last)
                    .map_err(failed)?;
            }
            self.context.decode(&mut batch).map_err(failed)?;
            let ids: Vec<i32> = chunk.iter().map(|token| token.0).collect();
            self.slots.computed(slot, &ids);
        }
        Ok(())
    }

    /// Draws tokens until the model ends, a stop sequence stands there, or the room is used up.
    fn generate(
        &mut self,
        ask: &Ask,
        slot: usize,
        prompt: usize,
        room: usize,
    ) -> Result<(String, u64, bool), Trouble> {
        let mut sampler = sampler(ask);
        let most = (ask.max_tokens as usize).clamp(1, room);
        let mut said = Vec::new();
        for drawn in 1..=most {
            let token = sampler.sample(&self.context, -1);
            let vocab = self.model.vocab();
            if vocab.is_eog(token) {
                return Ok((text(&said), drawn as u64, false));
            }
            let before = said.len();
            said.extend(vocab.token_to_piece(token, false, None));
            if let Some(end) = stop_in(&said, before, &ask.stop) {
                said.truncate(end);
                return Ok((text(&said), drawn as u64, false));
            }
            if drawn < most {
                self.compute(slot, prompt + drawn - 1, &[token])?;
            }
        }
        Ok((text(&said), most as u64, true))
    }
}

/// Temperature first, then the nucleus, as the field has it.
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

/// Where the first stop sequence begins that ends behind `before`.
fn stop_in(said: &[u8], before: usize, stops: &[String]) -> Option<usize> {
    let found = stops
        .iter()
        .filter(|stop| !stop.is_empty())
        .filter_map(|stop| {
            let from = before.saturating_sub(stop.len() - 1);
            let mut windows = said[from..].windows(stop.len());
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
