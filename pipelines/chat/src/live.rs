//! What happens while the model works, for whoever shows it, and how a person stops it.

use std::sync::Arc;

use pybench_run::RunError;
use pybench_types::observation::Output;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::entry::Entry;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A piece of the reply that is being generated.
    ReplyText(String),
    /// A cell begins to run.
    CellStarted(String),
    /// An output of the cell that runs.
    Output(Output),
    /// An entry is on the disk.
    Saved(Entry),
    /// Only the first entries count.
    Rewound { keep: usize },
    /// The session is being restored: cell number `cell` of `cells` runs again.
    Restoring { cell: usize, cells: usize },
    /// The session was restored.
    Restored(Restored),
    /// Something that a person should know.
    Note(String),
}

/// How a session was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of cells that ran again.
    pub cells: usize,
    /// Numbers of cells, from 1, that gave another output than before.
    pub differing: Vec<usize>,
    /// Numbers of cells that were interrupted, and did not run again.
    pub skipped: Vec<usize>,
}

/// The side of a conversation that works: sends events, and looks whether it should stop.
#[derive(Clone, Debug)]
pub struct Live {
    events: UnboundedSender<Event>,
    pub stop: Stop,
}

impl Live {
    /// Returns it with the receiver of its events.
    pub fn new() -> (Self, UnboundedReceiver<Event>) {
        let (events, receiver) = unbounded_channel();
        let stop = Stop::default();
        (Self { events, stop }, receiver)
    }

    /// Sends an event. Does nothing if the receiver is gone.
    pub(crate) fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// A person's request to stop; all clones share it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Stops the reply or cell that is in work.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the request.
    pub async fn requested(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|requested| *requested).await;
    }
}

/// How the work of the model ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person writes next.
    Answered,
    /// The person stopped it.
    Stopped,
    /// It has sent as many replies as one message may get.
    MaxTurns,
}

/// The result of work.
pub type Work = Result<Ended, RunError>;
