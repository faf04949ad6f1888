//! Row groups decoded ahead on all cores, and handed on in their order.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use pybench::run::cores;

use super::{Opened, Shard};
use crate::{DatasetError, Row};

/// Most threads: each holds some rows.
const THREADS: usize = 4;
/// Batches that a thread is ahead.
const AHEAD: usize = 2;

/// What comes of a row group: batches of the shard of that number, or what is wrong with it; then the end.
enum Sent {
    Rows(usize, Vec<Row>),
    Broken(usize, DatasetError),
    End,
}

/// The rows of shards. Of all row groups, one after another, each thread has every n-th.
pub(super) struct Ahead {
    shards: Arc<Vec<Shard>>,
    threads: Vec<(Receiver<Sent>, Option<JoinHandle<()>>)>,
    /// Row groups that are over.
    over: usize,
    /// The shard that the rows below are of.
    shard: usize,
    ready: std::vec::IntoIter<Row>,
    broken: Option<usize>,
}

impl Ahead {
    pub(super) fn new(shards: Vec<Shard>) -> Self {
        let shards = Arc::new(shards);
        let count = cores().min(THREADS);
        let thread = |own| {
            let (sender, receiver) = sync_channel(AHEAD);
            let shards = shards.clone();
            let work = move || {
                let _ = decode(&shards, own, count, &sender); // nobody wants the rest
            };
            (receiver, Some(thread::spawn(work)))
        };
        let threads = (0..count).map(thread).collect();
        Self {
            shards,
            threads,
            over: 0,
            shard: 0,
            ready: Vec::new().into_iter(),
            broken: None,
        }
    }
}

/// Send what the row groups hold of which `own` is the number among `count`.
fn decode(
    shards: &[Shard],
    own: usize,
    count: usize,
    sender: &SyncSender<Sent>,
) -> Result<(), SendError<Sent>> {
    let mut number = 0..;
    let mut is_own = || number.next().is_some_and(|number| number % count == own);
    for (place, shard) in shards.iter().enumerate() {
        let opened = match Opened::new(&shard.path) {
            Ok(opened) => opened,
            Err(error) => {
                if is_own() {
                    sender.send(Sent::Broken(place, error))?;
                    sender.send(Sent::End)?;
                }
                continue;
            }
        };
        for group in (0..opened.groups()).filter(|_| is_own()) {
            send(&opened, group, place, sender)?;
            sender.send(Sent::End)?;
        }
    }
    Ok(())
}

fn send(
    opened: &Opened,
    group: usize,
    place: usize,
    sender: &SyncSender<Sent>,
) -> Result<(), SendError<Sent>> {
    let mut rows = match opened.rows(Some(group)) {
        Ok(rows) => rows,
        Err(error) => return sender.send(Sent::Broken(place, error)),
    };
    while let Some(batch) = rows.batch() {
        match batch {
            Ok(rows) => sender.send(Sent::Rows(place, rows))?,
            Err(error) => return sender.send(Sent::Broken(place, error)),
        }
    }
    Ok(())
}

impl Iterator for Ahead {
    type Item = Result<(String, Row), DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.next() {
                return Some(Ok((self.shards[self.shard].split.clone(), row)));
            }
            let turn = self.over % self.threads.len();
            let (receiver, thread) = &mut self.threads[turn];
            match receiver.recv() {
                Ok(Sent::End) => self.over += 1,
                // What comes after it is left out.
                Ok(Sent::Rows(shard, _) | Sent::Broken(shard, _)) if self.broken == Some(shard) => {
                }
                Ok(Sent::Rows(shard, rows)) => {
                    self.shard = shard;
                    self.ready = rows.into_iter();
                }
                Ok(Sent::Broken(shard, error)) => {
                    self.broken = Some(shard);
                    return Some(Err(error));
                }
                // Whose turn it is has no group any more: nor has another. A panic of ours goes on here.
                Err(_) => match thread.take()?.join() {
                    Ok(()) => return None,
                    Err(panic) => resume_unwind(panic),
                },
            }
        }
    }
}
