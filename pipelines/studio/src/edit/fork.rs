//! One edit that is open: its session, its turns, its verdict.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pybench_agent::{AttemptResult, AttemptSpec, Format, Solver, fork, live_turns};
use pybench_attempts::keep_outputs;
use pybench_grade::{GradeCase, decide};
use pybench_run::{Failure, FailureKind, Journal, RunError, human_edits};
use pybench_types::human_edit::{HumanEdit, Lineage, TurnAuthor};
use pybench_types::trajectory::{OutputFile, Trajectory, Turn, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Notify;

use super::continuation::{Continuation, ContinuationView};
use super::conversation::{Activity, Conversation, Person};
use super::drafts::Draft;
use super::model_replies::ModelReplies;
use super::plan::{MAX_TURNS, Plan};
use super::session::{LiveSession, Sessions};
use super::subject::SavePlace;
use super::written::{SentTurn, WrittenTurn};
use crate::saved_edits::{EditInfo, SaveRequest};
use crate::sources::Opened;
use crate::view::{FileView, TurnView, outputs};

/// One edit that is open.
pub(crate) struct Fork {
    pub(crate) id: String,
    /// Name of the run.
    name: String,
    plan: Plan,
    branch: Mutex<Arc<Branch>>,
    sessions: Arc<Sessions>,
    replies: Arc<ModelReplies>,
    draft: Draft,
    /// When it was asked for last.
    seen: Mutex<Instant>,
    lease: Duration,
    is_closed: AtomicBool,
    /// It was closed, or goes back.
    changed: Notify,
}

/// The turns that an edit has now, until it goes back to an earlier one.
struct Branch {
    conversation: Arc<Conversation>,
    outcome: Mutex<Outcome>,
}

impl Branch {
    fn of(conversation: Conversation) -> Arc<Self> {
        Arc::new(Self {
            conversation: Arc::new(conversation),
            outcome: Mutex::new(Outcome::Open),
        })
    }

    /// Whether the conversation goes on.
    fn is_open(&self) -> bool {
        matches!(*lock(&self.outcome), Outcome::Open)
    }
}

/// How far an edit is.
enum Outcome {
    /// The conversation goes on.
    Open,
    Checking,
    Checked(Box<Edited>),
    Failed(String),
}

/// A trajectory with its verdict.
#[derive(Clone)]
struct Edited {
    trajectory: Trajectory,
    verdict: Verdict,
    /// Without the time.
    lineage: Lineage,
    saved: Option<EditInfo>,
}

/// What an edit waits for or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// The cells of the recorded turns run again.
    Replaying,
    /// It waits for a turn.
    Waiting,
    /// Cells run, or a model writes.
    Running,
    /// The checks run.
    Checking,
    /// There is a verdict.
    Checked,
    /// It cannot go on; `problem` says why.
    Failed,
}

/// An edit as its page shows it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ForkView {
    pub(crate) id: String,
    /// Name of the run.
    pub(crate) name: String,
    /// Id of the recorded trajectory.
    pub(crate) trajectory: String,
    /// The edited turn, from 1.
    pub(crate) turn: u32,
    pub(crate) editor: String,
    pub(crate) phase: Phase,
    pub(crate) problem: String,
    /// The turns of the edit, from the edited one on.
    pub(crate) turns: Vec<TurnView>,
    /// What was sent for them, so that the edit can be begun again.
    pub(crate) written: Vec<WrittenTurn>,
    /// Who wrote each of them.
    pub(crate) authors: Vec<TurnAuthor>,
    /// The numbers of turns after which the session was copied: going back there runs no cell again.
    pub(crate) copied: Vec<usize>,
    /// The last model that the person let write turns.
    pub(crate) continuation: Option<ContinuationView>,
    /// The recorded turns, from the edited one on.
    pub(crate) recorded: Vec<WrittenTurn>,
    /// Files that the code wrote.
    pub(crate) outputs: Vec<FileView>,
    pub(crate) verdict: Option<Verdict>,
    /// Whether a preference pair can be made of it: the recorded trajectory is rejected.
    pub(crate) pairable: bool,
    /// Why it cannot be saved; empty if it can.
    pub(crate) unsaved: String,
    /// Name of the run that keeps what is saved, if it is not the source: the one that made the row.
    pub(crate) saved_in: Option<String>,
    pub(crate) saved: Option<EditInfo>,
}

impl Fork {
    /// # Errors
    /// [`RunError::BadInput`] if a turn cannot be sent.
    pub(crate) fn new(
        id: String,
        name: String,
        plan: Plan,
        turns: Vec<WrittenTurn>,
        replies: Arc<ModelReplies>,
        draft: Draft,
        lease: Duration,
    ) -> Result<Self, RunError> {
        check_count(turns.len())?;
        let turns = sent(&plan, turns, &replies)?;
        let sessions = Sessions::new(plan.interpreter.clone(), plan.session.clone());
        Ok(Self {
            id,
            name,
            branch: Mutex::new(Branch::of(Conversation::beginning_with(turns))),
            plan,
            sessions: Arc::new(sessions),
            replies,
            draft,
            seen: Mutex::new(Instant::now()),
            lease,
            is_closed: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    /// Name of the run.
    pub(crate) fn source(&self) -> &str {
        &self.name
    }

    /// Notes that somebody still asks for it.
    pub(crate) fn touch(&self) {
        *lock(&self.seen) = Instant::now();
    }

    /// Ends the session.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Goes back to where the edit had its first `keep` turns: the others are taken back.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if there are fewer turns, or a model writes; [`RunError::BadInput`] if one of them cannot be sent
    /// again.
    pub(crate) fn back(&self, keep: usize) -> Result<(), RunError> {
        let mut branch = lock(&self.branch);
        let mut turns = branch.conversation.written();
        if keep > turns.len() {
            return Err(not_waiting());
        }
        turns.truncate(keep);
        let again = sent(&self.plan, turns.clone(), &self.replies)?;
        if branch.is_open() && !branch.conversation.leave() {
            return Err(RunError::Conflict(
                "a model writes the next turn: stop it, wait until its cell has ended, and take turns back then".to_owned(),
            ));
        }
        self.draft.keep(&turns);
        let conversation = branch.conversation.again_with(again);
        *branch = Branch::of(conversation);
        self.changed.notify_one();
        Ok(())
    }

    /// Replays the recorded turns, runs those of the person until one is an answer, and checks the result; again from an
    /// earlier turn, when the person goes back. Returns when the edit was closed, or no request came for it within the lease;
    /// its session and its copies have ended then.
    pub(crate) async fn live(&self) {
        loop {
            let branch = self.branch();
            tokio::select! {
                () = self.run(&branch) => self.left(&branch).await,
                () = self.left(&branch) => {}
            }
            if Arc::ptr_eq(&branch, &self.branch()) {
                break;
            }
        }
        self.sessions.close().await;
    }

    /// Returns once this branch is not the present one any more, the edit was closed, or its time is over.
    async fn left(&self, branch: &Arc<Branch>) {
        while !self.is_closed.load(Ordering::Relaxed) && Arc::ptr_eq(branch, &self.branch()) {
            let left = self.lease.saturating_sub(lock(&self.seen).elapsed());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn branch(&self) -> Arc<Branch> {
        lock(&self.branch).clone()
    }

    fn conversation(&self) -> Arc<Conversation> {
        self.branch().conversation.clone()
    }

    async fn run(&self, branch: &Branch) {
        let turns = branch.conversation.written().len();
        self.sessions.begin(turns).await;
        let outcome = match self.converse(branch).await {
            Ok(edited) => Outcome::Checked(Box::new(edited)),
            Err(failure) => Outcome::Failed(explain(&failure)),
        };
        *lock(&branch.outcome) = outcome;
        self.sessions.end_live().await;
    }

    async fn converse(&self, branch: &Branch) -> Result<Edited, Failure> {
        let plan = &self.plan;
        let mut session = LiveSession(self.sessions.clone());
        let person = Person {
            conversation: branch.conversation.clone(),
            replies: self.replies.clone(),
            sessions: self.sessions.clone(),
            draft: self.draft.clone(),
        };
        let solver = Solver::Model(Arc::new(person));
        let spec = AttemptSpec {
            task: &plan.task,
            sample: plan.recorded.sample,
            solver: &solver,
            format: plan.format,
            sampling: &plan.recorded.sampling,
            max_turns: MAX_TURNS,
            max_identical_turns: None,
            code_within_tokens: None,
            feedback: None,
        };
        let log = branch.conversation.as_ref();
        let solved = fork(&spec, &plan.recorded, plan.kept(), &mut session, log).await?;
        *lock(&branch.outcome) = Outcome::Checking;
        let outputs = keep_outputs(&mut session, &plan.store, &plan.recorded.id).await?;
        let mut authors = branch.conversation.authors();
        // What was sent after an answer did not count.
        authors.truncate(solved.turns.len().saturating_sub(plan.kept()));
        let lineage = Lineage {
            authors,
            ..plan.lineage.clone()
        };
        let trajectory = plan.trajectory(solved, outputs, &lineage);
        let case = GradeCase {
            task: &plan.task,
            trajectory: &trajectory,
            format: plan.format,
        };
        let verdict = decide(&case, &plan.filters, plan.checker.as_ref()).await?;
        Ok(Edited {
            trajectory,
            verdict,
            lineage,
            saved: None,
        })
    }

    /// Keeps its turns on the disk, so that it can be begun again with them.
    pub(crate) fn keep_turns(&self) {
        let turns = self.conversation().written();
        // An edit that begins without turns leaves those of the last one until it has some.
        if !turns.is_empty() {
            self.draft.keep(&turns);
        }
    }

    /// Sends turns. `after` is the number of turns that the person has seen.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if there are others, or the edit does not wait for a turn; [`RunError::BadInput`] if a turn
    /// cannot be sent.
    pub(crate) fn send(&self, after: usize, turns: Vec<WrittenTurn>) -> Result<(), RunError> {
        check_count(after.saturating_add(turns.len()))?;
        let turns = sent(&self.plan, turns, &self.replies)?;
        // The draft has the turns of the present branch, also if the edit goes back at the same time.
        let branch = lock(&self.branch);
        if !branch.conversation.send(after, turns) {
            return Err(not_waiting());
        }
        self.draft.keep(&branch.conversation.written());
        Ok(())
    }

    /// Lets a model write the next turns. `after` is as in [`send`](Self::send).
    ///
    /// # Errors
    /// [`RunError::Conflict`] as [`send`](Self::send); [`RunError::BadInput`] if there would be too many turns.
    pub(crate) fn continue_by(
        &self,
        after: usize,
        continuation: Continuation,
    ) -> Result<(), RunError> {
        check_count(after.saturating_add(continuation.max_turns() as usize))?;
        match self.conversation().continue_by(after, continuation) {
            true => Ok(()),
            false => Err(not_waiting()),
        }
    }

    /// Stops the model that writes turns, after the cell that runs.
    pub(crate) fn stop(&self) {
        self.conversation().stop();
    }

    /// The message format.
    pub(crate) fn format(&self) -> &'static dyn Format {
        self.plan.format
    }

    /// Saves the edited trajectory. It is on the disk when this returns. What it was saved as before, it remains.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the checks do not accept it, or it cannot be a pair; the journal cannot be written.
    pub(crate) fn save(&self, opened: &Opened, what: SaveRequest) -> Result<(), RunError> {
        let branch = self.branch();
        let edited = match &*lock(&branch.outcome) {
            Outcome::Checked(edited) => edited.clone(),
            _ => {
                return Err(refused(
                    "there is no verdict yet; the edit must end with an answer",
                ));
            }
        };
        let mut edit = self.edit(*edited, what)?;
        let mut write = |folder: &Path| {
            // The same turns may have been saved before, also from another page.
            let (recorded, id) = (&edit.lineage.trajectory, &edit.trajectory.id);
            let before = human_edits::read_one(&Journal::read_run(folder)?, recorded, id)?;
            if let Some(before) = before {
                edit.repair |= before.repair;
                edit.pair |= before.pair;
            }
            human_edits::save(folder, &edit)
        };
        match &self.plan.saved_in {
            SavePlace::Source => opened.save(write)?,
            SavePlace::Run(folder) => write(folder)?,
            SavePlace::Nowhere => return Err(refused(self.plan.unsaved())),
        }
        self.draft.forget();
        if let Outcome::Checked(edited) = &mut *lock(&branch.outcome) {
            edited.saved = Some(EditInfo::from(&edit));
        }
        Ok(())
    }

    fn edit(&self, edited: Edited, what: SaveRequest) -> Result<HumanEdit, RunError> {
        let (kept, recorded) = (self.plan.kept(), &self.plan.recorded.turns);
        let rejected = recorded.get(kept).map_or("", |turn| &turn.reply);
        let reply = edited.trajectory.turns.get(kept);
        if !edited.verdict.accepted {
            return Err(refused(
                "the checks do not accept the edited trajectory, so there is nothing verified to save; change a turn and \
                 run it again",
            ));
        }
        if !what.repair && !what.pair {
            return Err(refused("set `repair`, `pair` or both"));
        }
        if what.pair && !self.plan.is_rejected {
            return Err(refused(
                "a preference pair needs a worse side, and the recorded trajectory is accepted or not graded",
            ));
        }
        if what.pair && reply.is_some_and(|turn| turn.reply == rejected) {
            return Err(refused(
                "a preference pair needs two replies, and the edited turn is the recorded one; edit the turn that you changed",
            ));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut lineage = edited.lineage;
        lineage.saved_at = now.map_or(0, |time| time.as_secs());
        Ok(HumanEdit {
            rejected: rejected.to_owned(),
            trajectory: edited.trajectory,
            verdict: edited.verdict,
            lineage,
            repair: what.repair,
            pair: what.pair,
        })
    }

    /// The files that the code wrote. They are in the run of a row, not in the dataset that is shown.
    fn outputs(&self, trajectory: &Trajectory) -> Vec<FileView> {
        let mut files = outputs(trajectory);
        for file in &mut files {
            file.missing = matches!(self.plan.saved_in, SavePlace::Run(_));
        }
        files
    }

    /// The edit as its page shows it.
    pub(crate) fn view(&self) -> ForkView {
        let lineage = &self.plan.lineage;
        let branch = self.branch();
        let conversation = &branch.conversation;
        let steps = conversation.steps();
        let turns = live_turns(&steps, self.plan.format);
        let turns = turns.iter().skip(self.plan.kept());
        let outcome = lock(&branch.outcome);
        let edited = match &*outcome {
            Outcome::Checked(edited) => Some(edited),
            _ => None,
        };
        ForkView {
            id: self.id.clone(),
            name: self.name.clone(),
            trajectory: lineage.trajectory.to_string(),
            turn: lineage.turn,
            editor: lineage.editor.clone(),
            phase: phase(&outcome, conversation.activity()),
            problem: match &*outcome {
                Outcome::Failed(problem) => problem.clone(),
                _ => String::new(),
            },
            turns: turns.map(|turn: &Turn| TurnView::new(turn, true)).collect(),
            written: conversation.written(),
            authors: conversation.authors(),
            copied: self.sessions.copied(),
            continuation: conversation.continuation().map(|shown| ContinuationView {
                working: shown.working && matches!(*outcome, Outcome::Open),
                ..shown
            }),
            recorded: self.plan.recorded_rest(),
            outputs: edited
                .map(|edited| self.outputs(&edited.trajectory))
                .unwrap_or_default(),
            verdict: edited.map(|edited| edited.verdict.clone()),
            pairable: self.plan.is_rejected,
            unsaved: self.plan.unsaved().to_owned(),
            saved_in: self.plan.other_run(),
            saved: edited.and_then(|edited| edited.saved.clone()),
        }
    }
}

fn phase(outcome: &Outcome, activity: Activity) -> Phase {
    match (outcome, activity) {
        (Outcome::Checking, _) => Phase::Checking,
        (Outcome::Checked(_), _) => Phase::Checked,
        (Outcome::Failed(_), _) => Phase::Failed,
        (Outcome::Open, Activity::Replaying) => Phase::Replaying,
        (Outcome::Open, Activity::Waiting) => Phase::Waiting,
        (Outcome::Open, Activity::Running) => Phase::Running,
    }
}

impl Plan {
    /// The trajectory of an edit that ended.
    fn trajectory(
        &self,
        solved: AttemptResult,
        outputs: Vec<OutputFile>,
        lineage: &Lineage,
    ) -> Trajectory {
        let recorded = &self.recorded;
        let own = solved.turns.iter().skip(self.kept());
        let replies: Vec<&str> = own.map(|turn| turn.reply.as_str()).collect();
        let teacher = HumanEdit::teacher(lineage, &replies);
        let (sampling, format) = (&recorded.sampling, &recorded.format);
        Trajectory {
            id: Trajectory::compute_id(&recorded.task, &teacher, sampling, format, recorded.sample),
            task: recorded.task.clone(),
            teacher,
            sampling: recorded.sampling.clone(),
            sample: recorded.sample,
            seed: recorded.seed,
            environment: self.interpreter.environment().to_owned(),
            format: recorded.format.clone(),
            messages: solved.messages,
            turns: solved.turns,
            outputs,
            end: solved.end,
            fault: None,
            corrects: solved.corrects,
        }
    }
}

/// Turns with the replies that they become.
fn sent(
    plan: &Plan,
    turns: Vec<WrittenTurn>,
    replies: &ModelReplies,
) -> Result<Vec<SentTurn>, RunError> {
    let turns = turns.into_iter();
    let sent = turns.map(|turn| turn.sent(&plan.recorded, plan.format, replies));
    sent.collect()
}

fn not_waiting() -> RunError {
    RunError::Conflict(
        "the edit does not wait for this turn: another window may have sent one; look at its turns again".to_owned(),
    )
}

fn check_count(turns: usize) -> Result<(), RunError> {
    match turns <= MAX_TURNS as usize {
        true => Ok(()),
        false => Err(refused(&format!(
            "an edit has at most {MAX_TURNS} turns; end it with an answer"
        ))),
    }
}

fn refused(text: &str) -> RunError {
    RunError::BadInput(text.to_owned())
}

/// Why an edit cannot go on.
fn explain(failure: &Failure) -> String {
    match failure.kind {
        FailureKind::Replay => {
            let detail = failure.detail.split(';').next().unwrap_or_default();
            format!(
                "The state before this turn cannot be restored, because the recorded cells do not repeat: {detail}. Edit an \
                 earlier turn."
            )
        }
        _ => failure.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
