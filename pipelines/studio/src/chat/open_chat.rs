//! One conversation that is open: a task works for it, and pages ask for its state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pybench_agent::Format;
use pybench_chat::conversation::{Conversation, listed_files};
use pybench_chat::dataset;
use pybench_chat::entry::Entry;
use pybench_chat::export::{ExportedChat, SaveAs, export};
use pybench_chat::grade::grade;
use pybench_chat::history::Spending;
use pybench_chat::live::{Event, Live, Restored, Stop};
use pybench_chat::transcript::Next;
use pybench_interpreter::{EntryKind, Files};
use pybench_run::{RunError, waiting};
use pybench_types::trajectory::{Sampling, Verdict};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::view::{ChatFile, ChatView, items};
use crate::file_types::preview;
use crate::view::{CellView, OutputView, shown_output};

/// Maximum number of outputs of a running cell that are shown before it ends.
const MAX_OUTPUTS: usize = 200;
/// Maximum number of files that are listed.
const MAX_FILES: usize = 200;
/// Changes within this time are answered together.
const TOGETHER: Duration = Duration::from_millis(40);

/// What a person asks of a conversation.
pub(crate) enum Order {
    Send(String),
    /// Replaces a message and takes back what followed.
    Edit(usize, String),
    Retry,
    Continue,
    /// Puts a file into `./data`.
    Put(String, Vec<u8>),
    Grade,
    /// Adds the conversation to the dataset of the history.
    Add,
    /// Restores the session of a conversation that is continued.
    Restore,
}

/// An order, and what watches its work.
pub(crate) struct Task(Order, Live, UnboundedReceiver<Event>);

/// One conversation that is open.
pub(crate) struct OpenChat {
    pub(crate) id: String,
    agent: String,
    model: String,
    format: &'static dyn Format,
    sampling: Sampling,
    limits: Vec<String>,
    has_price: bool,
    gradable: bool,
    orders: Sender<Task>,
    state: Mutex<State>,
    version: watch::Sender<u64>,
    /// When it was asked for last.
    seen: Mutex<Instant>,
    lease: Duration,
    closed: Stop,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    generation: u64,
    /// Stops the work; `None` if nothing is in work.
    stop: Option<Stop>,
    reply: String,
    running: Option<CellView>,
    unfinished: bool,
    problem: String,
    notes: Vec<String>,
    files: Option<Files>,
    spending: Spending,
    verdict: Option<Verdict>,
}

impl OpenChat {
    /// Returns it with the receiver of its orders.
    ///
    /// # Errors
    /// The history cannot be read.
    pub(crate) fn new(
        conversation: &Conversation,
        lease: Duration,
    ) -> Result<(Arc<Self>, Receiver<Task>), RunError> {
        let (orders, receiver) = channel(1);
        let (settings, agent) = (conversation.settings(), conversation.agent());
        let state = State {
            entries: conversation.entries().to_vec(),
            unfinished: conversation.next_step() != Next::Person,
            spending: conversation.spending()?,
            ..State::default()
        };
        let chat = Self {
            id: conversation.id().to_owned(),
            agent: settings.label.clone(),
            model: agent.model.name().to_owned(),
            format: agent.format,
            sampling: agent.rollout.sampling.clone(),
            limits: limits(conversation),
            has_price: agent.model.price().is_some(),
            gradable: settings.task.is_some(),
            orders,
            state: Mutex::new(state),
            version: watch::Sender::new(1),
            seen: Mutex::new(Instant::now()),
            lease,
            closed: Stop::default(),
        };
        Ok((Arc::new(chat), receiver))
    }

    /// Notes that somebody still asks for it.
    pub(crate) fn touch(&self) {
        *lock(&self.seen) = Instant::now();
    }

    /// Ends its session.
    pub(crate) fn close(&self) {
        self.closed.request();
    }

    /// Stops the reply or cell that is in work.
    pub(crate) fn stop(&self) {
        if let Some(stop) = &lock(&self.state).stop {
            stop.request();
        }
    }

    /// Access to the files of the session, if it runs.
    pub(crate) fn files(&self) -> Option<Files> {
        lock(&self.state).files.clone()
    }

    /// What was saved of it, in this form. Several pages can ask for it, and the model may work meanwhile.
    pub(crate) fn export(&self, form: SaveAs) -> String {
        let entries = lock(&self.state).entries.clone();
        let chat = ExportedChat {
            id: &self.id,
            model: &self.model,
            format: self.format,
            sampling: &self.sampling,
            entries: &entries,
        };
        export(chat, form)
    }

    /// Gives an order.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another one is in work, or the conversation was closed.
    pub(crate) fn order(&self, order: Order) -> Result<(), RunError> {
        let (live, events) = Live::new();
        let stop = live.stop.clone();
        {
            let mut state = lock(&self.state);
            if state.stop.is_some() {
                let text = "the model works on another message: wait, or stop it";
                return Err(RunError::Conflict(text.to_owned()));
            }
            self.orders
                .try_send(Task(order, live, events))
                .map_err(|_| {
                    RunError::Conflict("the conversation was closed; open it again".to_owned())
                })?;
            state.stop = Some(stop);
            (state.problem, state.notes) = (String::new(), Vec::new());
        }
        self.change(|_| {});
        Ok(())
    }

    /// Works on orders until it is closed, or nobody has asked for it for some time. Its session has ended then.
    pub(crate) async fn live(
        &self,
        mut conversation: Conversation,
        mut orders: Receiver<Task>,
        _permit: OwnedSemaphorePermit,
    ) {
        loop {
            let task = tokio::select! {
                task = orders.recv() => task,
                () = self.abandoned() => None,
            };
            let Some(task) = task else { break };
            if !self.perform(&mut conversation, task).await {
                break;
            }
        }
        // Orders that come now are refused, and one that came too late is not in work.
        drop(orders);
        self.change(|state| state.stop = None);
        conversation.close().await;
    }

    /// Returns once it was closed or its time is over.
    async fn abandoned(&self) {
        loop {
            let left = self.lease.saturating_sub(lock(&self.seen).elapsed());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.closed.requested() => return,
            }
        }
    }

    /// Does what a task says; `false` if it was abandoned meanwhile.
    async fn perform(&self, conversation: &mut Conversation, task: Task) -> bool {
        let Task(order, live, mut events) = task;
        let done = {
            let work = execute(conversation, order, &live);
            tokio::pin!(work);
            loop {
                tokio::select! {
                    biased;
                    Some(event) = events.recv() => self.happened(event),
                    done = &mut work => break Some(done),
                    () = self.abandoned() => break None,
                }
            }
        };
        while let Ok(event) = events.try_recv() {
            self.happened(event);
        }
        let Some(done) = done else { return false };
        let (files, spending) = (conversation.running_files(), conversation.spending());
        let unfinished = conversation.next_step() != Next::Person;
        self.change(|state| {
            (state.stop, state.running) = (None, None);
            state.reply.clear();
            state.unfinished = unfinished;
            state.files = files;
            match spending {
                Ok(spending) => state.spending = spending,
                Err(error) => state.problem = error.to_string(),
            }
            match done {
                Ok(Some(verdict)) => state.verdict = Some(verdict),
                Ok(None) => {}
                Err(error) => state.problem = error.to_string(),
            }
        });
        true
    }

    fn happened(&self, event: Event) {
        self.change(|state| {
            // The verdict on a conversation stands until it changes.
            if matches!(event, Event::Saved(_) | Event::Rewound { .. }) {
                state.verdict = None;
            }
            state.add(event);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.version.send_modify(|version| *version += 1);
    }

    /// Waits until the version is above `after`, `most` has passed, or it is closed.
    pub(crate) async fn changed(&self, after: u64, most: Duration) {
        let mut version = self.version.subscribe();
        let change = async {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = version.wait_for(|version| *version > after).await;
            if after > 0 {
                tokio::time::sleep(TOGETHER).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(most, change) => {}
            () = self.closed.requested() => {}
        }
    }

    /// Its state, with the parts from `from` on if nothing was taken back since `generation`.
    pub(crate) fn view(&self, generation: u64, from: usize) -> ChatView {
        let version = *self.version.borrow();
        let state = lock(&self.state);
        let from = match state.generation == generation {
            true => from.min(state.entries.len()),
            false => 0,
        };
        let cost = state.spending.micro_usd;
        ChatView {
            id: self.id.clone(),
            agent: self.agent.clone(),
            model: self.model.clone(),
            format: self.format.name().to_owned(),
            version,
            generation: state.generation,
            from,
            items: items(&state.entries, self.format, from),
            working: state.stop.is_some(),
            reply: state.reply.clone(),
            running: state.running.clone(),
            unfinished: state.unfinished,
            problem: state.problem.clone(),
            notes: state.notes.clone(),
            files: state.files.as_ref().map(listed).unwrap_or_default(),
            limits: self.limits.clone(),
            tokens: state.spending.tokens,
            micro_usd: self.has_price.then_some(cost),
            gradable: self.gradable,
            verdict: state.verdict.clone(),
        }
    }
}

impl State {
    /// Adds what happened in the conversation.
    fn add(&mut self, event: Event) {
        match event {
            Event::ReplyText(piece) => self.reply.push_str(&piece),
            Event::CellStarted(code) => {
                self.running = Some(CellView {
                    code: Some(code),
                    outputs: Vec::new(),
                });
            }
            Event::Output(output) => {
                if let Some(cell) = &mut self.running {
                    add(&mut cell.outputs, shown_output(&output));
                }
            }
            Event::Saved(entry) => {
                match &entry {
                    Entry::Reply { .. } | Entry::PartialReply { .. } => self.reply.clear(),
                    Entry::Run { .. } => self.running = None,
                    _ => {}
                }
                self.entries.push(entry);
            }
            Event::Rewound { keep } => {
                self.entries.truncate(keep);
                self.generation += 1;
            }
            Event::Restoring { cell, cells } => {
                self.notes = vec![format!("restoring the session: cell {cell} of {cells}")];
            }
            Event::Restored(restored) => self.notes = notes(&restored),
            Event::Note(text) => self.notes.push(text),
        }
    }
}

async fn execute(
    conversation: &mut Conversation,
    order: Order,
    live: &Live,
) -> Result<Option<Verdict>, RunError> {
    match order {
        Order::Send(text) => conversation.send(&text, live).await.map(drop)?,
        Order::Edit(number, text) => conversation.edit(number, &text, live).await.map(drop)?,
        Order::Retry => conversation.regenerate(live).await.map(drop)?,
        Order::Continue => conversation.go_on(live).await.map(drop)?,
        Order::Put(name, bytes) => waiting(|| conversation.put_file(&name, &bytes, live))?,
        Order::Restore => conversation.restore(live).await.map(drop)?,
        Order::Grade => return grade(conversation, live).await.map(Some),
        Order::Add => return dataset::add(conversation, live).await,
    }
    Ok(None)
}

/// Adds an output of a running cell. Text arrives in pieces.
fn add(outputs: &mut Vec<OutputView>, new: Option<OutputView>) {
    let Some(new) = new else { return };
    match (outputs.last_mut(), &new) {
        (Some(OutputView::Text { text }), OutputView::Text { text: more })
        | (Some(OutputView::Stderr { text }), OutputView::Stderr { text: more }) => {
            text.push_str(more);
            return;
        }
        _ => {}
    }
    if outputs.len() < MAX_OUTPUTS {
        outputs.push(new);
    }
}

fn notes(restored: &Restored) -> Vec<String> {
    let numbers = |numbers: &[usize]| {
        let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
        texts.join(", ")
    };
    let differing = (!restored.differing.is_empty()).then(|| {
        format!(
            "These cells gave another output than before, so variables may differ: {}.",
            numbers(&restored.differing)
        )
    });
    let skipped = (!restored.skipped.is_empty()).then(|| {
        format!(
            "These cells had been stopped and did not run again, so variables of them are missing: {}.",
            numbers(&restored.skipped)
        )
    });
    differing.into_iter().chain(skipped).collect()
}

fn limits(conversation: &Conversation) -> Vec<String> {
    let (settings, rollout) = (conversation.settings(), &conversation.agent().rollout);
    let limits = &settings.interpreter.limits;
    let mut texts = vec![
        format!(
            "A message gets at most {} replies of {} tokens each.",
            rollout.max_turns, rollout.sampling.max_tokens
        ),
        format!(
            "A cell runs at most {} s; of its output, {} characters are kept.",
            limits.cell_seconds, limits.output_chars
        ),
        format!(
            "The session has {} MiB of memory, {} processes and files of at most {} MiB.",
            limits.memory_mib, limits.processes, limits.file_mib
        ),
    ];
    texts
        .extend((settings.budget.usd).map(|usd| format!("The conversation costs at most ${usd}.")));
    let tokens = settings.budget.tokens;
    texts.extend(tokens.map(|tokens| format!("The conversation uses at most {tokens} tokens.")));
    texts.extend(conversation.warnings());
    texts
}

fn listed(files: &Files) -> Vec<ChatFile> {
    let entries = listed_files(files).unwrap_or_default().into_iter();
    let entries = entries.filter(|entry| entry.kind == EntryKind::File);
    let files = entries.take(MAX_FILES).map(|entry| ChatFile {
        preview: preview(&entry.path),
        path: entry.path,
        size: entry.size,
    });
    files.collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
