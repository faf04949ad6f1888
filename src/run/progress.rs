//! Progress: one bar per stage on a terminal, a log line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines of one stage where stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far the stages are. Clones write to the same place.
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

    /// Bars where stderr is a terminal, log lines where it is not.
    pub fn stderr() -> Self {
        if std::io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr();
            Self(Target::Bars(MultiProgress::with_draw_target(target)))
        } else {
            Self(Target::Lines)
        }
    }

    /// Only log lines, as for `--log-format json`.
    pub fn lines() -> Self {
        Self(Target::Lines)
    }

    /// Show a stage of `total` units, of which some may be done already.
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
            bar,
            lines: matches!(self.0, Target::Lines),
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// Write to stderr without tearing the bars.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.0 {
            Target::Bars(multi) => multi.suspend(write),
            Target::Hidden | Target::Lines => write(),
        }
    }
}

fn stage_bar(name: &str, total: u64) -> ProgressBar {
    // The template is a constant; were it ever wrong, the default style still shows the bar.
    let style = ProgressStyle::with_template(
        "{prefix:>9} {bar:32} {pos}/{len} {msg} [{elapsed_precise}, {eta} left]",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total)
        .with_style(style)
        .with_prefix(name.to_owned())
}

/// Progress of one stage.
#[derive(Debug)]
pub struct StageProgress {
    name: String,
    total: u64,
    done: AtomicU64,
    failed: AtomicU64,
    bar: Option<ProgressBar>,
    lines: bool,
    last_line: Mutex<Instant>,
}

impl StageProgress {
    /// `count` units are done that were done before: they do not count for the speed.
    pub fn resume(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(count);
            bar.reset_eta();
        }
    }

    /// A unit is done.
    pub fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// A unit failed for good.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// The stage ends, whether all is done or not; the last state stays visible.
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
            match self.failed.load(Ordering::Relaxed) {
                0 => {}
                failed => bar.set_message(format!("({failed} failed)")),
            }
        } else if self.lines {
            let mut last = self
                .last_line
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                drop(last);
                self.line();
            }
        }
    }

    fn line(&self) {
        let (done, failed) = (
            self.done.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        );
        tracing::info!(
            target: "pybench::progress",
            stage = self.name, done, failed, total = self.total,
            "{}: {} of {}", self.name, done + failed, self.total,
        );
    }
}

/// Handle shared between the tasks of a stage.
pub(crate) type SharedProgress = Arc<StageProgress>;
