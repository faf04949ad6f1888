//! The first page: the leaderboards, and what the site has.

use pybench_run::RunError;
use pybench_types::text::{line, percent};
use serde::Serialize;

use super::site::Site;
use super::task_pages::TaskLine;
use super::trajectory_page::TrajectoryLine;
use crate::results::leaderboard::{EntryKind, Leaderboard, LeaderboardEntry, RateView, Results};

#[derive(Serialize)]
struct IndexPage<'a> {
    title: &'static str,
    boards: Vec<Board>,
    tasks: &'a [TaskLine],
    trajectories: &'a [TrajectoryLine],
}

/// A leaderboard with its numbers as texts.
#[derive(Serialize)]
struct Board {
    suite: String,
    score: String,
    categories: Vec<String>,
    rows: Vec<BoardRow>,
}

#[derive(Serialize)]
struct BoardRow {
    agent: String,
    kind: EntryKind,
    overall: String,
    interval: String,
    tasks: String,
    cells: Vec<String>,
    turns: String,
    /// The evaluation, or the publication.
    from: String,
    note: String,
}

/// Writes the page.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(
    site: &mut Site,
    results: &Results,
    tasks: &[TaskLine],
    trajectories: &[TrajectoryLine],
) -> Result<(), RunError> {
    let page = IndexPage {
        title: "Results",
        boards: results.leaderboards.iter().map(Board::from).collect(),
        tasks,
        trajectories,
    };
    site.page("index.html", "index.html", page)
}

impl From<&Leaderboard> for Board {
    fn from(board: &Leaderboard) -> Self {
        Self {
            suite: line(&board.suite),
            score: board.score.clone(),
            categories: board.categories.iter().map(|name| line(name)).collect(),
            rows: board.entries.iter().map(BoardRow::from).collect(),
        }
    }
}

impl From<&LeaderboardEntry> for BoardRow {
    fn from(entry: &LeaderboardEntry) -> Self {
        let rate = |rate: &RateView| percent(rate.rate);
        let cell = |cell: &Option<RateView>| cell.as_ref().map(rate).unwrap_or_default();
        let bounds = entry.bounds.map(|(worst, best)| {
            let (worst, best) = (percent(worst), percent(best));
            format!(
                "{} attempts have no result: {worst} to {best}",
                entry.missing
            )
        });
        let notes = [entry.note.clone(), bounds.unwrap_or_default()];
        let notes: Vec<String> = notes.into_iter().filter(|note| !note.is_empty()).collect();
        Self {
            agent: line(&entry.agent),
            kind: entry.kind,
            overall: rate(&entry.overall),
            interval: entry
                .overall
                .interval
                .map(|(low, high)| format!("{} to {}", percent(low), percent(high)))
                .unwrap_or_default(),
            tasks: entry
                .overall
                .tasks
                .map(|tasks| tasks.to_string())
                .unwrap_or_default(),
            cells: entry.categories.iter().map(cell).collect(),
            turns: entry
                .turns
                .map(|turns| format!("{turns:.1}"))
                .unwrap_or_default(),
            from: match entry.kind {
                EntryKind::Published => line(&entry.about),
                EntryKind::Measured | EntryKind::Baseline => line(&entry.run),
            },
            note: notes.join("; "),
        }
    }
}
