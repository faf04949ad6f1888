//! Decodes row groups ahead of the reader on several threads, and returns them in order.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use pybench_run::cores;

use super::{OpenShard, Shard};
use crate::{DatasetError, Row};

/// Maximum number of threads. Each keeps some rows in memory.
const MAX_THREADS: usize = 4;
/// Number of batches that a thread decodes ahead.
const QUEUE_LENGTH: usize = 2;

/// Message from a decoder thread. For each row group it sends batches or an error, each with the index of the shard,
/// and then the end.
enum DecodedGroup {
    Rows(usize, Vec<Row>),
    Invalid(usize, DatasetError),
    End,
}

/// Iterator over the rows of several shards. With n threads, each thread decodes every n-th row group.
pub(super) struct Prefetcher {
    shards: Arc<Vec<Shard>>,
    threads: Vec<(Receiver<DecodedGroup>, Option<JoinHandle<()>>)>,
    /// Row groups that have been read completely.
    finished_groups: usize,
    /// Index of the shard that `ready` belongs to.
    shard: usize,
    ready: std::vec::IntoIter<Row>,
    /// Index of the last invalid shard.
    invalid: Option<usize>,
}

impl Prefetcher {
    pub(super) fn new(shards: Vec<Shard>) -> Self {
        let shards = Arc::new(shards);
        let count = cores().min(MAX_THREADS);
        let thread = |own| {
            let (sender, receiver) = sync_channel(QUEUE_LENGTH);
            let shards = shards.clone();
            let work = move || {
                let _ = decode(&shards, own, count, &sender); // the receiver was dropped
            };
            (receiver, Some(thread::spawn(work)))
        };
        let threads = (0..count).map(thread).collect();
        Self {
            shards,
            threads,
            finished_groups: 0,
            shard: 0,
            ready: Vec::new().into_iter(),
            invalid: None,
        }
    }
}

/// Decode the row groups of thread `own` of `count` threads, and send them.
fn decode(
    shards: &[Shard],
    own: usize,
    count: usize,
    sender: &SyncSender<DecodedGroup>,
) -> Result<(), SendError<DecodedGroup>> {
    let mut number = 0..;
    let mut is_own = || number.next().is_some_and(|number| number % count == own);
    for (index, shard) in shards.iter().enumerate() {
        let opened = match OpenShard::new(&shard.path) {
            Ok(opened) => opened,
            Err(error) => {
                if is_own() {
                    sender.send(DecodedGroup::Invalid(index, error))?;
                    sender.send(DecodedGroup::End)?;
                }
                continue;
            }
        };
        for group in (0..opened.groups()).filter(|_| is_own()) {
            send_group(&opened, group, index, sender)?;
            sender.send(DecodedGroup::End)?;
        }
    }
    Ok(())
}

fn send_group(
    opened: &OpenShard,
    group: usize,
    index: usize,
    sender: &SyncSender<DecodedGroup>,
) -> Result<(), SendError<DecodedGroup>> {
    let mut rows = match opened.rows(Some(group)) {
        Ok(rows) => rows,
        Err(error) => return sender.send(DecodedGroup::Invalid(index, error)),
    };
    while let Some(batch) = rows.next_batch() {
        match batch {
            Ok(rows) => sender.send(DecodedGroup::Rows(index, rows))?,
            Err(error) => return sender.send(DecodedGroup::Invalid(index, error)),
        }
    }
    Ok(())
}

impl Iterator for Prefetcher {
    type Item = Result<(String, Row), DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.next() {
                return Some(Ok((self.shards[self.shard].split.clone(), row)));
            }
            let turn = self.finished_groups % self.threads.len();
            let (receiver, thread) = &mut self.threads[turn];
            match receiver.recv() {
                Ok(DecodedGroup::End) => self.finished_groups += 1,
                // Skip the rest of an invalid shard.
                Ok(DecodedGroup::Rows(shard, _) | DecodedGroup::Invalid(shard, _))
                    if self.invalid == Some(shard) => {}
                Ok(DecodedGroup::Rows(shard, rows)) => {
                    self.shard = shard;
                    self.ready = rows.into_iter();
                }
                Ok(DecodedGroup::Invalid(shard, error)) => {
                    self.invalid = Some(shard);
                    return Some(Err(error));
                }
                // The thread has no more row groups, so the others have none either. Propagate a panic.
                Err(_) => match thread.take()?.join() {
                    Ok(()) => return None,
                    Err(panic) => resume_unwind(panic),
                },
            }
        }
    }
}
