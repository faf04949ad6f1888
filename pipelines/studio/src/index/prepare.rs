//! Reads the trajectories of a source, and prepares what the index has of each.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use pybench_run::RunError;
use pybench_show::TrajectorySource;

use crate::evaluation::each_record;
use crate::prices::Prices;
use crate::record::Record;
use crate::row::{Row, cost};
use crate::search;
use crate::view::{PAGE_TURNS, View};

/// A batch is sent when it has this many rows or bytes, or is this old. Few are in memory at a time.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
const BATCH_AGE: Duration = Duration::from_millis(100);

/// What the index has of a trajectory.
pub(super) struct PreparedRow {
    pub(super) row: Row,
    /// The record as JSON.
    pub(super) json: String,
    /// The words of users, models and interpreter.
    pub(super) words: [String; 3],
    /// For a trajectory whose turns are rows of their own.
    pub(super) turns: Option<PreparedTurns>,
}

/// The page of a long trajectory without its turns, and the turns, as JSON.
pub(super) struct PreparedTurns {
    pub(super) head: String,
    pub(super) turns: Vec<String>,
}

impl PreparedRow {
    pub(super) fn new(number: u64, record: Record, prices: &Prices) -> Result<Self, RunError> {
        let mut row = Row::new(number, &record);
        row.micro_usd = row.micro_usd.or_else(|| cost(&record, prices));
        let json = serde_json::to_string(&record)?;
        let mut view = View::new(row.clone(), record);
        let words = view.texts().each_ref().map(|text| search::indexed(text));
        let turns = match view.turns.len() > PAGE_TURNS {
            false => None,
            true => {
                let turns = std::mem::take(&mut view.turns);
                let turns = turns.iter().map(serde_json::to_string);
                Some(PreparedTurns {
                    turns: turns.collect::<Result<_, _>>()?,
                    head: serde_json::to_string(&view)?,
                })
            }
        };
        Ok(Self {
            row,
            json,
            words,
            turns,
        })
    }

    /// About how many bytes are written of it.
    pub(super) fn size(&self) -> usize {
        let words: usize = self.words.iter().map(String::len).sum();
        let turns = self.turns.iter().flat_map(|long| &long.turns);
        self.json.len() + words + turns.map(String::len).sum::<usize>()
    }
}

/// Sends every trajectory of a source, in batches. Those before an error are sent too.
///
/// # Errors
/// The source cannot be read or is empty, or nobody receives.
pub(super) fn send_all(
    source: &TrajectorySource,
    sender: SyncSender<Vec<PreparedRow>>,
) -> Result<(), RunError> {
    let prices = Prices::of(source);
    let mut batches = Batches {
        sender,
        batch: Vec::new(),
        bytes: 0,
        since: Instant::now(),
    };
    let mut number = 0;
    let read = each_record(source, &mut |record| {
        number += 1;
        batches.add(PreparedRow::new(number, record, &prices)?)
    });
    let sent = batches.send();
    read.and(sent)
}

struct Batches {
    sender: SyncSender<Vec<PreparedRow>>,
    batch: Vec<PreparedRow>,
    bytes: usize,
    since: Instant,
}

impl Batches {
    fn add(&mut self, row: PreparedRow) -> Result<(), RunError> {
        self.bytes += row.size();
        self.batch.push(row);
        let is_full = self.batch.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES;
        match is_full || self.since.elapsed() >= BATCH_AGE {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<(), RunError> {
        let batch = std::mem::take(&mut self.batch);
        (self.bytes, self.since) = (0, Instant::now());
        let gone = |_| RunError::Internal("the thread that writes the index has ended".to_owned());
        self.sender.send(batch).map_err(gone)
    }
}
