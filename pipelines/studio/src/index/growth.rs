//! How far an index is: the thread that makes it says so, and requests ask.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pybench_run::RunError;
use schemars::JsonSchema;
use serde::Serialize;

/// How long a new index is waited for, so that small ones are complete when they are shown for the first time.
const MOMENT: Duration = Duration::from_millis(500);
/// The same while it has fewer rows than a page, so that it is not shown empty, and small sources are never shown in part.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows of the largest page.
const PAGE_ROWS: u64 = 500;

/// How far an index is that does not have all trajectories of its source.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct IndexProgress {
    /// Number of trajectories that are indexed.
    pub(crate) rows: u64,
    /// Why the rest cannot be indexed; empty while indexing goes on.
    pub(crate) problem: String,
}

/// What the thread that makes an index and those that read it share.
pub(super) struct Growth {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    rows: u64,
    end: Option<End>,
    /// Whether somebody waits for the index, and reports why it cannot be made.
    is_awaited: bool,
    is_unwanted: bool,
}

struct End {
    at: Instant,
    failure: Option<Failure>,
}

struct Failure {
    text: String,
    /// The error itself, for the first who asks.
    error: Option<RunError>,
}

impl End {
    fn result(&mut self) -> Result<(), RunError> {
        match &mut self.failure {
            None => Ok(()),
            Some(failure) => Err(failure
                .error
                .take()
                .unwrap_or_else(|| RunError::BadInput(failure.text.clone()))),
        }
    }
}

impl Growth {
    /// Of an index without rows.
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::new(State {
                rows: 0,
                end: None,
                is_awaited: true,
                is_unwanted: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Of an index that is complete.
    pub(super) fn complete() -> Self {
        let growth = Self::new();
        growth.end(Ok(()));
        growth
    }

    /// So many rows can be read now.
    pub(super) fn reached(&self, rows: u64) {
        self.lock().rows = rows;
        self.changed.notify_all();
    }

    /// The index is complete, or cannot be completed. Only the first call counts.
    pub(super) fn end(&self, result: Result<(), RunError>) {
        let mut state = self.lock();
        if state.end.is_some() {
            return;
        }
        let failure = result.err().map(|error| Failure {
            text: error.to_string(),
            error: Some(error),
        });
        if let Some(failure) = &failure
            && !state.is_awaited
            && !state.is_unwanted
        {
            let (rows, text) = (state.rows, &failure.text);
            tracing::error!(
                "indexing ended early, and only the first {rows} rows are shown: {text}"
            );
        }
        let at = Instant::now();
        state.end = Some(End { at, failure });
        self.changed.notify_all();
    }

    /// Nobody needs the index any more; returns whether it is still being made.
    pub(super) fn abandon(&self) -> bool {
        let mut state = self.lock();
        state.is_unwanted = true;
        state.end.is_none()
    }

    /// Whether the index is no longer needed.
    pub(super) fn is_unwanted(&self) -> bool {
        self.lock().is_unwanted
    }

    /// `None` once the index is complete.
    pub(super) fn progress(&self) -> Option<IndexProgress> {
        let state = self.lock();
        let problem = match &state.end {
            None => String::new(),
            Some(end) => end.failure.as_ref()?.text.clone(),
        };
        Some(IndexProgress {
            rows: state.rows,
            problem,
        })
    }

    /// How long ago the index ended, and how long it took; `None` while it is being made.
    pub(super) fn age(&self) -> Option<(Duration, Duration)> {
        let state = self.lock();
        let end = state.end.as_ref()?;
        Some((end.at.elapsed(), end.at.duration_since(self.started)))
    }

    /// Waits a moment for the index to be complete, and longer for its first rows.
    ///
    /// # Errors
    /// It could not be made.
    pub(super) fn wait_for_rows(&self) -> Result<(), RunError> {
        let mut state = self.lock();
        loop {
            if let Some(end) = &mut state.end {
                return end.result();
            }
            let limit = match state.rows < PAGE_ROWS {
                true => PATIENCE,
                false => MOMENT,
            };
            let left = limit.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                state.is_awaited = false;
                return Ok(());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the index is complete.
    ///
    /// # Errors
    /// It could not be made.
    pub(super) fn wait(&self) -> Result<(), RunError> {
        let mut state = self.lock();
        state.is_awaited = true;
        loop {
            if let Some(end) = &mut state.end {
                return end.result();
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_until_the_index_is_complete() {
        let growth = Growth::new();
        growth.reached(PAGE_ROWS);
        let progress = |problem: &str| IndexProgress {
            rows: PAGE_ROWS,
            problem: problem.to_owned(),
        };
        assert_eq!(growth.progress(), Some(progress("")));
        assert!(growth.age().is_none() && growth.abandon());
        growth.end(Ok(()));
        assert_eq!(growth.progress(), None);
        assert!(growth.age().is_some() && !growth.abandon());
        growth.wait_for_rows().unwrap();
    }

    #[test]
    fn a_failure_is_told_to_all_and_later_ends_change_nothing() {
        let growth = Growth::new();
        growth.reached(3);
        growth.end(Err(RunError::Environment("the disk is full".to_owned())));
        growth.end(Ok(()));
        let error = growth.wait_for_rows().unwrap_err();
        assert!(matches!(error, RunError::Environment(_)), "{error}");
        assert_eq!(growth.wait().unwrap_err().to_string(), "the disk is full");
        let progress = growth.progress().unwrap();
        assert_eq!((progress.rows, &*progress.problem), (3, "the disk is full"));
    }

    #[test]
    fn nobody_waits_longer_than_for_a_page_of_rows() {
        let growth = Growth::new();
        growth.reached(PAGE_ROWS);
        growth.wait_for_rows().unwrap();
        assert!(growth.age().is_none());
    }
}
