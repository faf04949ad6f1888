//! Progress display: one bar per stage on a terminal, a log line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use pybench_types::text::dollars;

use crate::InFlight;

/// Interval between log lines of a stage if stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows the progress of stages. Clones share the display.
#[derive(Clone, Debug)]
pub struct Progress(Target);

#[derive(Clone, Debug)]
enum Target {
    Hidden,
    Lines,
    Bars(MultiProgress),
}

impl Progress {
    /// Shows nothing.
    pub fn hidden() -> Self {
        Self(Target::Hidden)
    }

    /// Bars if stderr is a terminal, log lines otherwise.
    pub fn stderr() -> Self {
        if std::io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr();
            Self(Target::Bars(MultiProgress::with_draw_target(target)))
        } else {
            Self(Target::Lines)
        }
    }

    /// Log lines only, for `--log-format json`.
    pub fn lines() -> Self {
        Self(Target::Lines)
    }

    /// Starts the display of a stage with `total` units, some of which may already be done.
    pub fn stage(&self, name: &str, total: u64) -> StageProgress {
        let bar = match &self.0 {
            Target::Bars(multi) => Some(multi.add(stage_bar(name, total))),
            Target::Hidden | Target::Lines => None,
        };
        StageProgress {
            name: name.to_owned(),
            total,
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            micro_usd: AtomicU64::new(0),
            in_flight: Mutex::new(None),
            bar,
            lines: matches!(self.0, Target::Lines),
            last_line: Mutex::new((Instant::now(), String::new())),
        }
    }

    /// As [`Progress::stage`], for units of which `settled` have ended before and `pending` have not.
    pub(crate) fn resumed(&self, name: &str, settled: u64, pending: usize) -> SharedProgress {
        let progress = self.stage(name, settled + pending as u64);
        progress.resume(settled);
        Arc::new(progress)
    }

    /// Runs `write` while the bars are hidden, so that its output does not tear them.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Target::Bars(multi) => multi.suspend(write),
            Target::Hidden | Target::Lines => write(),
        }
    }
}

fn stage_bar(name: &str, total: u64) -> ProgressBar {
    // The template is a constant; the default style is a fallback.
    let style = ProgressStyle::with_template(
        "{prefix:>9} {bar:32} {pos}/{len} {msg} [{elapsed_precise}, {eta} left]",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total)
        .with_style(style)
        .with_prefix(name.to_owned())
}

#[derive(Debug)]
pub struct StageProgress {
    name: String,
    total: u64,
    done: AtomicU64,
    failed: AtomicU64,
    /// Money that the run has spent, in millionths of a dollar.
    micro_usd: AtomicU64,
    /// Shown while requests are in flight.
    in_flight: Mutex<Option<InFlight>>,
    bar: Option<ProgressBar>,
    lines: bool,
    /// When the last line was logged, and what it said.
    last_line: Mutex<(Instant, String)>,
}

impl StageProgress {
    /// Counts `count` units as done in an earlier process; they do not affect the estimated speed.
    pub fn resume(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(count);
            bar.reset_eta();
        }
    }

    /// Shows what the run has spent from the next unit on.
    pub fn spent(&self, micro_usd: u64) {
        self.micro_usd.store(micro_usd, Ordering::Relaxed);
    }

    /// Shows the requests in flight, if there are any.
    pub fn in_flight(&self, state: InFlight) {
        *locked(&self.in_flight) = (state.requests > 0).then_some(state);
        if let Some(bar) = &self.bar {
            bar.set_message(self.message());
        }
    }

    /// Counts a unit as done.
    pub fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// Counts a unit as finally failed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// Ends the display; the last state stays visible.
    pub fn finish(&self) {
        match &self.bar {
            Some(bar) => bar.abandon(),
            None if self.lines => self.line(),
            None => {}
        }
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(self.message());
        } else if self.lines {
            let due = locked(&self.last_line).0.elapsed() >= LINE_EVERY;
            if due {
                self.line();
            }
        }
    }

    /// Failures, money and requests in flight, if there are any.
    fn message(&self) -> String {
        let failed = self.failed.load(Ordering::Relaxed);
        let micro_usd = self.micro_usd.load(Ordering::Relaxed);
        let failed = (failed > 0).then(|| format!("{failed} failed"));
        let spent = (micro_usd > 0).then(|| format!("{} spent", dollars(micro_usd)));
        let in_flight = locked(&self.in_flight).as_ref().map(ToString::to_string);
        let parts = [failed, spent, in_flight].into_iter().flatten();
        let parts: Vec<_> = parts.collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("({})", parts.join(", ")),
        }
    }

    fn line(&self) {
        let (done, failed) = (
            self.done.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        );
        let text = format!(
            "{}: {} of {} {}",
            self.name,
            done + failed,
            self.total,
            self.message()
        );
        if self.is_news(&text) {
            tracing::info!(
                target: "pybench_types::progress",
                stage = self.name, done, failed, total = self.total, "{}", text.trim_end(),
            );
        }
    }

    /// Notes the line that is logged next; `false` if the last one said the same.
    fn is_news(&self, text: &str) -> bool {
        let mut last = locked(&self.last_line);
        let news = last.1 != text;
        *last = (Instant::now(), text.to_owned());
        news
    }
}

/// The value; numbers and texts cannot be left inconsistent by a panic.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Progress of a stage, shared by its tasks.
pub(crate) type SharedProgress = Arc<StageProgress>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_stage_repeats_no_line() {
        let progress = Progress::lines().stage("rollout", 1);
        assert!(progress.is_news("rollout: 1 of 1 "));
        assert!(!progress.is_news("rollout: 1 of 1 "));
        assert!(progress.is_news("rollout: 1 of 1 (1 failed)"));
    }

    #[test]
    fn failures_and_money_are_shown_where_there_are_any() {
        let progress = Progress::hidden().stage("rollout", 9);
        progress.done();
        assert_eq!(progress.message(), "");
        progress.spent(5_700);
        assert_eq!(progress.message(), "($0.0057 spent)");
        progress.failed();
        assert_eq!(progress.message(), "(1 failed, $0.0057 spent)");
        let mut state = InFlight {
            stage: "rollout".to_owned(),
            units: 9,
            requests: 7,
            limited_by: None,
        };
        progress.in_flight(state.clone());
        let text = "(1 failed, $0.0057 spent, requests in flight: 7)";
        assert_eq!(progress.message(), text);
        state.requests = 0;
        progress.in_flight(state);
        assert_eq!(progress.message(), "(1 failed, $0.0057 spent)");
    }
}
