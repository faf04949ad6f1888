//! The thread that owns the model. It computes the next tokens of all active replies together and sends their
//! text.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use pybench_inference::{Sampler, Sampling, log_probabilities};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::decoder::{Decoder, SequenceCache as _};
use super::repetition::RepetitionDetection;
use super::required_text::{RequiredText, RequiredTextWatch};
use super::slots::Slots;
use super::text::TextStream;
use super::vocabulary::Vocabulary;

/// Tokens per forward pass while replies are generated, which a long prompt should not delay.
const MIXED_PASS_TOKENS: usize = 512;
/// Tokens per forward pass of prompts alone: each pass reads all weights.
const PROMPT_PASS_TOKENS: usize = 2048;

/// One requested reply.
#[derive(Debug)]
pub(super) struct GenerationJob {
    /// Index in the request.
    pub(super) index: usize,
    /// The same for all replies to one prompt; the others wait until the first has computed it.
    pub(super) prompt_number: u64,
    pub(super) prompt: Arc<Vec<i64>>,
    /// At least 1.
    pub(super) max_tokens: usize,
    pub(super) sampling: Sampling,
    pub(super) stops: Vec<String>,
    pub(super) stop_tokens: Arc<Vec<u32>>,
    /// Control tokens that are shown as text.
    pub(super) shown: Arc<Vec<u32>>,
    /// Number of alternatives to report with each token.
    pub(super) top_logprobs: Option<usize>,
    pub(super) repetition: Option<RepetitionDetection>,
    pub(super) required_text: Option<RequiredText>,
    /// Whether to remove the space before the first word.
    pub(super) trim_first: bool,
    pub(super) out: mpsc::UnboundedSender<(usize, ReplyEvent)>,
    /// Held while the job is queued or active.
    pub(super) permit: OwnedSemaphorePermit,
}

/// A token with its log-probability, and the most likely alternatives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TokenLogprob {
    pub(super) id: u32,
    pub(super) logprob: f32,
    pub(super) top: Vec<(u32, f32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishReason {
    Stop,
    Length,
    /// The reply repeats itself.
    Repetition,
    /// The reply has none of the required texts in time.
    RequiredText,
}

impl FinishReason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Repetition => "repetition",
            Self::RequiredText => "required_text",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReplyEvent {
    /// New text, which may be empty, and the generated token.
    Delta {
        text: String,
        logprob: Option<TokenLogprob>,
    },
    Done {
        finish: FinishReason,
        /// Tokens of the reply, including the end of turn.
        tokens: usize,
        /// Prompt tokens whose keys and values were cached.
        cached: usize,
    },
    /// A failure of the server.
    Failed(String),
}

#[derive(Debug)]
struct ActiveReply {
    job: GenerationJob,
    sampler: Sampler,
    text: TextStream,
    /// Until the required text is found.
    watch: Option<RequiredTextWatch>,
    tokens: Vec<u32>,
    cached: usize,
}

/// What an engine may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineLimits {
    /// Replies in progress at once.
    pub(super) slots: usize,
    /// Replies that wait for one of the slots.
    pub(super) queue: usize,
    /// Tokens whose keys and values are cached, of replies in progress and of earlier ones.
    pub(super) cached_tokens: usize,
}

/// The handle of the engine thread. Permits bound the number of jobs.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    jobs: Sender<GenerationJob>,
    permits: Arc<Semaphore>,
}

impl Engine {
    /// Starts the thread.
    pub(super) fn start<D: Decoder + Send + 'static>(
        decoder: D,
        vocabulary: Arc<Vocabulary>,
        limits: EngineLimits,
    ) -> std::io::Result<Self>
    where
        D::Cache: Send,
    {
        let (jobs, inbox) = channel();
        let runner = EngineLoop {
            slots: Slots::new(limits.slots, limits.cached_tokens),
            waiting: VecDeque::new(),
            decoder,
            vocabulary,
        };
        let thread = std::thread::Builder::new().name("engine".into());
        thread.spawn(move || runner.run(&inbox))?;
        Ok(Self {
            jobs,
            permits: Arc::new(Semaphore::new(limits.slots + limits.queue)),
        })
    }

    /// Permits for `count` replies, or `None` if the queue is full.
    pub(super) fn reserve(&self, count: usize) -> Option<Vec<OwnedSemaphorePermit>> {
        let permit = || self.permits.clone().try_acquire_owned().ok();
        (0..count).map(|_| permit()).collect()
    }

    /// Number of replies that could be accepted now.
    pub(super) fn capacity(&self) -> usize {
        self.permits.available_permits()
    }

    /// Queues a job. `false` if the thread has ended.
    pub(super) fn submit(&self, job: GenerationJob) -> bool {
        self.jobs.send(job).is_ok()
    }
}

struct EngineLoop<D: Decoder> {
    slots: Slots<ActiveReply, D::Cache>,
    waiting: VecDeque<GenerationJob>,
    decoder: D,
    vocabulary: Arc<Vocabulary>,
}

impl<D: Decoder> EngineLoop<D> {
    fn run(mut self, inbox: &Receiver<GenerationJob>) {
        while self.collect(inbox) {
            self.drop_abandoned();
            self.admit();
            let pass = AssertUnwindSafe(|| self.pass());
            if catch_unwind(pass).is_err() {
                // The forward pass failed, for example for lack of memory. Only the active replies are lost.
                self.fail_all("the forward pass failed; see the log of the server");
            }
            self.slots.evict();
        }
    }

    /// Receives jobs; blocks if there is nothing to do. `false` if no sender is left.
    fn collect(&mut self, inbox: &Receiver<GenerationJob>) -> bool {
        let busy = |runner: &Self| {
            let running = runner.slots.all.iter().any(|slot| slot.work.is_some());
            running || !runner.waiting.is_empty()
        };
        if !busy(self) {
            match inbox.recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(_) => return false,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return busy(self),
            }
        }
    }

    /// Drops replies whose client has disconnected.
    fn drop_abandoned(&mut self) {
        self.waiting.retain(|job| !job.out.is_closed());
        for slot in &mut self.slots.all {
            if slot.work.as_ref().is_some_and(|w| w.job.out.is_closed()) {
                slot.work = None;
            }
        }
    }

    fn admit(&mut self) {
        let mut later = VecDeque::new();
        while let Some(job) = self.waiting.pop_front() {
            // A reply to the same prompt that is still computing it will share it.
            let sibling = self.slots.all.iter().any(|slot| {
                let prompt_number = slot.work.as_ref().map(|work| work.job.prompt_number);
                prompt_number == Some(job.prompt_number) && slot.pending() > 1
            });
            if sibling || !self.slots.has_room() {
                later.push_back(job);
                continue;
            }
            let prompt = job.prompt.clone();
            self.slots.admit(&prompt, |cached| ActiveReply {
                sampler: Sampler::new(job.sampling),
                text: TextStream::new(job.stops.clone()),
                watch: job.required_text.clone().map(RequiredTextWatch::new),
                tokens: vec![],
                cached,
                job,
            });
        }
        self.waiting = later;
    }

    /// One forward pass over the pending tokens of all active replies, the shortest first.
    fn pass(&mut self) {
        let mut running: Vec<_> = self
            .slots
            .all
            .iter_mut()
            .filter(|s| s.work.is_some())
            .collect();
        running.sort_by_key(|slot| slot.pending());
        // A prompt has more than one token, unless it is all cached but the last one.
        let mut budget = match running.first().is_some_and(|slot| slot.pending() == 1) {
            true => MIXED_PASS_TOKENS,
            false => PROMPT_PASS_TOKENS,
        };
        let mut extensions = vec![];
        for slot in &mut running {
            let count = slot.pending().min(budget);
            if count > 0 {
                let start = slot.cache.len();
                budget -= count;
                extensions.push((&mut slot.cache, &slot.ids[start..start + count]));
            }
        }
        if extensions.is_empty() {
            return;
        }
        let taken = extensions.len();
        self.decoder.extend(extensions);
        for (row, slot) in running.into_iter().take(taken).enumerate() {
            if slot.pending() > 0 {
                continue;
            }
            let Some(work) = slot.work.as_mut() else {
                continue;
            };
            match work.next(self.decoder.logits(row), &self.vocabulary) {
                Ok(id) => slot.ids.push(i64::from(id)),
                Err(last) => {
                    if let Some(work) = slot.work.take() {
                        work.end(last);
                    }
                }
            }
        }
    }

    fn fail_all(&mut self, reason: &str) {
        for work in self.slots.clear() {
            work.end(ReplyEvent::Failed(reason.into()));
        }
    }
}

impl ActiveReply {
    /// Sends the last event. The permit is released first, because a client may send its next request
    /// immediately.
    fn end(self, last: ReplyEvent) {
        drop(self.job.permit);
        let _ = self.job.out.send((self.job.index, last));
    }

    /// Samples the next token and sends its text. Returns the token, or the last event if the reply is complete.
    fn next(&mut self, logits: &[f32], vocabulary: &Vocabulary) -> Result<u32, ReplyEvent> {
        let Some(id) = self.sampler.pick(logits) else {
            let reason = "the model returned NaN: its weights are broken";
            return Err(ReplyEvent::Failed(reason.into()));
        };
        self.tokens.push(id);
        let logprob = self.job.top_logprobs.map(|count| {
            let (logprob, top) = log_probabilities(logits, id, count);
            TokenLogprob { id, logprob, top }
        });
        let ends_turn = self.job.stop_tokens.contains(&id);
        let hidden = vocabulary.is_special(id) && !self.job.shown.contains(&id);
        let (text, stopped) = match ends_turn || hidden {
            true => (String::new(), false),
            false => self.text.push(self.trimmed(vocabulary.bytes(id))),
        };
        let finish = match ends_turn || stopped {
            true => Some(FinishReason::Stop),
            false => self.forced_end(&text),
        };
        let rest = match (finish, stopped) {
            (Some(_), false) => self.text.finish(),
            _ => String::new(),
        };
        let text = text + &rest;
        // The end of turn is not part of the reply.
        let logprob = logprob.filter(|_| !ends_turn);
        // A closed receiver is detected before the next pass.
        let _ = self
            .job
            .out
            .send((self.job.index, ReplyEvent::Delta { text, logprob }));
        match finish {
            None => Ok(id),
            Some(finish) => Err(ReplyEvent::Done {
                finish,
                tokens: self.tokens.len(),
                cached: self.cached,
            }),
        }
    }

    /// Why the reply ends here, after a token with this text, although the model would go on.
    fn forced_end(&mut self, text: &str) -> Option<FinishReason> {
        if self.tokens.len() >= self.job.max_tokens {
            return Some(FinishReason::Length);
        }
        if self.lacks_required(text) {
            return Some(FinishReason::RequiredText);
        }
        let repeats = self.job.repetition?.matches(&self.tokens);
        repeats.then_some(FinishReason::Repetition)
    }

    /// Whether the time for the required text is over without it.
    fn lacks_required(&mut self, text: &str) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        let found = watch.add(text, self.tokens.len());
        if found.is_some() {
            self.watch = None;
        }
        found == Some(false)
    }

    fn trimmed<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.job.trim_first && self.tokens.len() == 1 {
            true => bytes.strip_prefix(b" ").unwrap_or(bytes),
            false => bytes,
        }
    }
}
