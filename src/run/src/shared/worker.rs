//! What a worker process does beside the units: it registers, works on rounds, and drains.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_types::memory;
use serde::{Deserialize, Serialize};

use super::announcement::{Round, program_digest};
use super::periodic::Periodic;
use super::queue::UnitQueue;
use super::unit_loop::{AttemptEnd, UnitLoop};
use crate::blocking::waiting;
use crate::local::cores;
use crate::{ExecutorOptions, Interrupt, Journal, RunError, RunFolder, Stage, Urgency};

/// How often a worker looks for offers, and whether its round goes on.
const POLL: Duration = Duration::from_millis(250);

/// A worker, as `pybench status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Host and process.
    pub name: String,
    /// What it runs on.
    #[serde(default)]
    pub machine: WorkerMachine,
    /// Seconds since its last sign of life, by the clock of the journal.
    #[serde(default, skip_deserializing)]
    pub silent_seconds: u64,
    /// Stages that it takes units of.
    pub stages: Vec<String>,
    /// Stage of the round that it works on.
    pub stage: Option<String>,
    /// Units in work.
    pub units: usize,
    /// Units that it has ended, done or failed.
    #[serde(default)]
    pub ended: u64,
    /// Whether it takes no further units.
    pub draining: bool,
}

/// What a worker runs on, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerMachine {
    /// Digest of the program, shortened.
    pub program: String,
    /// Digest of the Python environment with its packages, shortened.
    pub packages: String,
    /// Isolation tier of its sessions.
    pub tier: String,
    /// Cores that it may use.
    pub cores: usize,
    /// Memory that was free when it joined, in MiB; 0 if it is unknown.
    pub free_mib: u64,
}

impl WorkerMachine {
    /// This machine. `packages` is the digest of the Python environment.
    ///
    /// # Errors
    /// The program's file cannot be read.
    pub fn here(tier: String, packages: &str) -> Result<Self, RunError> {
        Ok(Self {
            program: program_digest()?.short().to_owned(),
            packages: packages.chars().take(12).collect(),
            tier,
            cores: cores(),
            free_mib: memory::available().unwrap_or(0) >> 20,
        })
    }
}

impl Member {
    /// A worker that has not begun to work.
    pub fn new(name: String, stages: Vec<String>) -> Self {
        Self {
            name,
            stages,
            ..Self::default()
        }
    }

    /// The workers of a run that are alive.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn all(journal: &Journal) -> Result<Vec<Self>, RunError> {
        let members = journal.members()?.into_iter();
        members
            .map(|(about, silent_seconds)| {
                Ok(Self {
                    silent_seconds,
                    ..serde_json::from_str(&about)?
                })
            })
            .collect()
    }
}

/// How the work on a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    /// The coordinator offers nothing more.
    RoundEnded,
    /// The worker is asked to end.
    Drained,
}

/// A worker that is registered in the journal of a run, until it is dropped or leaves.
#[derive(Debug)]
pub struct WorkerSession {
    folder: Arc<RunFolder>,
    member: Arc<Mutex<Member>>,
    heartbeat: Periodic,
    queue: Option<Arc<dyn UnitQueue>>,
}

impl WorkerSession {
    /// Registers this process; without a sign of life it is taken for dead after `lease`.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn start(
        folder: Arc<RunFolder>,
        member: Member,
        lease: Duration,
    ) -> Result<Self, RunError> {
        let member = Arc::new(Mutex::new(member));
        beat(&folder, &member, lease)?;
        // A move marks the journal before it looks for workers.
        if let Some(to) = folder.journal().moved_to()? {
            folder.journal().leave()?;
            return Err(RunError::Conflict(format!(
                "the run is being moved to {to}: start the worker again when it is there"
            )));
        }
        let (beating, own) = (folder.clone(), member.clone());
        let heartbeat = Periodic::start("heartbeat", lease / 3, move || {
            if let Err(error) = beat(&beating, &own, lease) {
                tracing::warn!("cannot tell the run that this worker is alive: {error}");
            }
        })?;
        Ok(Self {
            folder,
            member,
            heartbeat,
            queue: None,
        })
    }

    /// Takes the units of rounds that use a queue from this one.
    #[must_use]
    pub fn with_queue(mut self, queue: Option<Arc<dyn UnitQueue>>) -> Self {
        self.queue = queue;
        self
    }

    /// Works on the units of a round until the coordinator ends it, or until this process is asked to end.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the round uses a queue and this worker has none; the journal cannot be accessed.
    pub async fn work_on(
        &self,
        (options, interrupt): (&ExecutorOptions, &Interrupt),
        stage: Arc<dyn Stage>,
        round: &Round,
    ) -> Result<WorkEnd, RunError> {
        let options = ExecutorOptions {
            budget: round.budget,
            attempts: round.attempts,
            unit_limit: round.unit_limit,
            ..options.clone()
        };
        let folder = self.folder.clone();
        let journal = folder.journal();
        let mut units = UnitLoop::new(
            self.folder.clone(),
            options,
            interrupt.clone(),
            stage,
            (round.clone(), self.queue_of(round)?),
        )?;
        let mut poll = tokio::time::interval(POLL);
        let mut is_open = true;
        loop {
            let draining = interrupt.requested();
            if is_open && !draining {
                units.start_more()?;
            } else {
                units.stop_taking();
            }
            {
                let mut member = self.member();
                member.stage = Some(round.stage.clone());
                member.units = units.len();
                member.draining = draining;
            }
            if units.is_idle() && (draining || !is_open) {
                break;
            }
            tokio::select! {
                end = units.next() => match end.transpose()? {
                    Some(AttemptEnd::Stop(reason)) => {
                        let reason: RunError = reason.into();
                        tracing::warn!("the stage {} stops: {reason}", round.stage);
                        is_open = false;
                    }
                    Some(AttemptEnd::Done | AttemptEnd::Failed(_)) => self.member().ended += 1,
                    _ => {}
                },
                () = interrupt.wait(Urgency::Now) => {
                    units.shutdown().await;
                    break;
                }
                () = interrupt.wait(Urgency::Finish), if !draining => {}
                _ = poll.tick() => {
                    let now = Round::announced(journal)?;
                    is_open = is_open && now.is_some_and(|now| now.id == round.id);
                }
            }
        }
        units.shutdown().await;
        let mut member = self.member();
        (member.stage, member.units) = (None, 0);
        Ok(match interrupt.requested() {
            true => WorkEnd::Drained,
            false => WorkEnd::RoundEnded,
        })
    }

    fn queue_of(&self, round: &Round) -> Result<Option<Arc<dyn UnitQueue>>, RunError> {
        match (round.is_queued, &self.queue) {
            (false, _) => Ok(None),
            (true, Some(queue)) => Ok(Some(queue.clone())),
            (true, None) => Err(RunError::Conflict(
                "the coordinator distributes units through Temporal, and the profile of this worker has no section \
                 [temporal]: start the worker with the profile of the coordinator"
                    .to_owned(),
            )),
        }
    }

    /// Ends the registration. Calls in flight become uncertain.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub async fn leave(self) -> Result<(), RunError> {
        // A beat after this would register the worker again.
        waiting(|| drop(self.heartbeat));
        self.folder.journal().leave()
    }

    fn member(&self) -> MutexGuard<'_, Member> {
        locked(&self.member)
    }
}

fn beat(folder: &RunFolder, member: &Mutex<Member>, lease: Duration) -> Result<(), RunError> {
    let about = serde_json::to_string(&*locked(member))?;
    let seconds = i64::try_from(lease.as_secs()).unwrap_or(i64::MAX).max(1);
    folder.journal().beat(&about, seconds)
}

fn locked(member: &Mutex<Member>) -> MutexGuard<'_, Member> {
    // Plain values cannot be left inconsistent by a panic.
    member.lock().unwrap_or_else(PoisonError::into_inner)
}
