//! The thread that owns the model: it takes jobs, computes the next tokens of all running ones
//! together, and sends what they say.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use tch::Tensor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::sampler::{Sampler, Sampling, log_probabilities};
use super::slots::Slots;
use super::text::TextStream;
use super::vocabulary::Vocabulary;
use crate::model::{Extension, Model};

/// Tokens that one pass through the model takes, so that a long prompt does not hold up the others.
const PASS_TOKENS: usize = 512;

/// One reply that is wanted.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number in the request.
    pub(super) index: usize,
    /// Replies of one prompt share this number: the second waits for the first's prompt.
    pub(super) family: u64,
    pub(super) prompt: Arc<Vec<i64>>,
    /// Most tokens of the reply, at least 1.
    pub(super) limit: usize,
    pub(super) sampling: Sampling,
    pub(super) stops: Vec<String>,
    /// Tokens after which the reply is over.
    pub(super) ends: Arc<Vec<u32>>,
    /// Alternatives to report with each token.
    pub(super) log_probabilities: Option<usize>,
    /// Whether the first word loses its space.
    pub(super) trim_first: bool,
    pub(super) out: mpsc::UnboundedSender<(usize, Event)>,
    /// Held while the job waits or runs.
    pub(super) permit: OwnedSemaphorePermit,
}

/// A token and its alternatives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Likely {
    pub(super) id: u32,
    pub(super) log_probability: f32,
    pub(super) top: Vec<(u32, f32)>,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What a job sends.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// Text that may be empty, and the token that was generated.
    Piece {
        text: String,
        likely: Option<Likely>,
    },
    /// The end.
    Done {
        finish: Finish,
        /// Tokens of the reply, the end of turn included.
        tokens: usize,
        /// Tokens of the prompt that needed no computing.
        cached: usize,
    },
    /// A failure of ours.
    Failed(String),
}

/// A job in a slot.
#[derive(Debug)]
struct Work {
    job: Job,
    sampler: Sampler,
    text: TextStream,
    tokens: usize,
    cached: usize,
}

/// The engine's front: bounded by its permits.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    jobs: Sender<Job>,
    permits: Arc<Semaphore>,
}

impl Engine {
    /// Starts the thread. `slots` replies run at once, `queue` more may wait.
    pub(super) fn start(
        model: Model,
        vocabulary: Arc<Vocabulary>,
        slots: usize,
        queue: usize,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = channel();
        let runner = Runner {
            slots: Slots::new(slots),
            waiting: VecDeque::new(),
            model,
            vocabulary,
        };
        let thread = std::thread::Builder::new().name("engine".into());
        thread.spawn(move || runner.run(&inbox))?;
        Ok(Self {
            jobs,
            permits: Arc::new(Semaphore::new(slots + queue)),
        })
    }

    /// Room for that many replies, or `None` when the queue is full.
    pub(super) fn reserve(&self, count: usize) -> Option<Vec<OwnedSemaphorePermit>> {
        let permit = || self.permits.clone().try_acquire_owned().ok();
        (0..count).map(|_| permit()).collect()
    }

    /// Replies that could be taken on now.
    pub(super) fn room(&self) -> usize {
        self.permits.available_permits()
    }

    /// Hands a job over. `false` when the thread is gone.
    pub(super) fn submit(&self, job: Job) -> bool {
        self.jobs.send(job).is_ok()
    }
}

struct Runner {
    slots: Slots<Work>,
    waiting: VecDeque<Job>,
    model: Model,
    vocabulary: Arc<Vocabulary>,
}

impl Runner {
    fn run(mut self, inbox: &Receiver<Job>) {
        while self.collect(inbox) {
            self.drop_abandoned();
            self.admit();
            let pass = AssertUnwindSafe(|| self.pass());
            if catch_unwind(pass).is_err() {
                // libtorch refused (no memory, say): these replies are lost, the next ones are not.
                self.fail_all("the model could not be run; see the server's log");
            }
        }
    }

    /// Takes jobs in; sleeps when there is nothing to do. `false` when nobody can send any more.
    fn collect(&mut self, inbox: &Receiver<Job>) -> bool {
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

    /// A client that left needs no reply.
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
            // A sibling that still computes the prompt will have it to share.
            let sibling = self.slots.all.iter().any(|slot| {
                let family = slot.work.as_ref().map(|work| work.job.family);
                family == Some(job.family) && slot.pending() > 1
            });
            if sibling || !self.slots.has_room() {
                later.push_back(job);
                continue;
            }
            let prompt = job.prompt.clone();
            self.slots.admit(&prompt, |cached| Work {
                sampler: Sampler::new(job.sampling),
                text: TextStream::new(job.stops.clone()),
                tokens: 0,
                cached,
                job,
            });
        }
        self.waiting = later;
    }

    /// One pass through the model over the pending tokens of all running jobs, short ones first.
    fn pass(&mut self) {
        let mut running: Vec<_> = self
            .slots
            .all
            .iter_mut()
            .filter(|s| s.work.is_some())
            .collect();
        running.sort_by_key(|slot| slot.pending());
        let mut budget = PASS_TOKENS;
        let mut extensions = vec![];
        for slot in &mut running {
            let count = slot.pending().min(budget);
            if count > 0 {
                let start = slot.cache.len();
                budget -= count;
                extensions.push(Extension {
                    ids: &slot.ids[start..start + count],
                    cache: &mut slot.cache,
                });
            }
        }
        if extensions.is_empty() {
            return;
        }
        let taken = extensions.len();
        let logits = self.model.extend(&mut extensions);
        drop(extensions);
        for (row, slot) in running.into_iter().take(taken).enumerate() {
            if slot.pending() > 0 {
                continue;
            }
            let logits = to_vec(&logits.get(row as i64));
            let Some(work) = slot.work.as_mut() else {
                continue;
            };
            match work.next(&logits, &self.vocabulary) {
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
        for slot in &mut self.slots.all {
            let work = slot.work.take();
            slot.reset();
            if let Some(work) = work {
                work.end(Event::Failed(reason.into()));
            }
        }
    }
}

fn to_vec(logits: &Tensor) -> Vec<f32> {
    Vec::<f32>::try_from(logits).unwrap_or_default()
}

impl Work {
    /// Sends the last event. The room is given back first: a client that has read its reply may ask
    /// again at once.
    fn end(self, last: Event) {
        drop(self.job.permit);
        let _ = self.job.out.send((self.job.index, last));
    }

    /// Chooses the next token, sends what it says, and gives it where the reply goes on; otherwise
    /// the last event.
    fn next(&mut self, logits: &[f32], vocabulary: &Vocabulary) -> Result<u32, Event> {
        if logits.is_empty() || logits.iter().any(|logit| !logit.is_finite()) {
            let reason = "the model gave NaN: its weights are broken";
            return Err(Event::Failed(reason.into()));
        }
        let id = self.sampler.pick(logits);
        self.tokens += 1;
        let likely = self.job.log_probabilities.map(|count| {
            let (log_probability, top) = log_probabilities(logits, id, count);
            Likely {
                id,
                log_probability,
                top,
            }
        });
        let ends = self.job.ends.contains(&id);
        let (text, stopped) = match ends || vocabulary.is_special(id) {
            true => (String::new(), false),
            false => self.text.push(self.trimmed(vocabulary.bytes(id))),
        };
        let finish = match (ends || stopped, self.tokens >= self.job.limit) {
            (true, _) => Some(Finish::Stop),
            (_, true) => Some(Finish::Length),
            _ => None,
        };
        let rest = match (finish, stopped) {
            (Some(_), false) => self.text.finish(),
            _ => String::new(),
        };
        let text = text + &rest;
        // The end of turn is no part of the reply.
        let likely = likely.filter(|_| !ends);
        // Nobody listening is found out before the next pass.
        let _ = self
            .job
            .out
            .send((self.job.index, Event::Piece { text, likely }));
        match finish {
            None => Ok(id),
            Some(finish) => Err(Event::Done {
                finish,
                tokens: self.tokens,
                cached: self.cached,
            }),
        }
    }

    fn trimmed<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match self.job.trim_first && self.tokens == 1 {
            true => bytes.strip_prefix(b" ").unwrap_or(bytes),
            false => bytes,
        }
    }
}
