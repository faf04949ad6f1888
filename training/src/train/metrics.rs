//! `metrics.jsonl` and the live line.

use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::StepReport;

/// Writes a line for every step.
#[derive(Debug)]
pub(super) struct Metrics {
    file: File,
    steps: u64,
    live: bool,
    last_line: Option<Instant>,
    seconds: f64,
    tokens: usize,
    done: u64,
}

impl Metrics {
    /// Goes on with a file after `done` steps: lines of steps that a resumed run does again go.
    pub(super) fn open(path: &Path, done: u64, steps: u64) -> std::io::Result<Self> {
        let kept: String = fs::read_to_string(path)
            .unwrap_or_default()
            .lines()
            .filter(|line| {
                let step = serde_json::from_str::<serde_json::Value>(line).ok();
                step.and_then(|s| s["step"].as_u64())
                    .is_some_and(|s| s <= done)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        fs::write(path, kept)?;
        Ok(Self {
            file: OpenOptions::new().append(true).open(path)?,
            steps,
            live: std::io::stderr().is_terminal(),
            last_line: None,
            seconds: 0.0,
            tokens: 0,
            done: 0,
        })
    }

    pub(super) fn step(&mut self, report: &StepReport) -> std::io::Result<()> {
        let mut line = serde_json::to_string(report)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.seconds += report.seconds;
        self.tokens += report.tokens;
        self.done += 1;
        self.show(report);
        Ok(())
    }

    fn show(&mut self, report: &StepReport) {
        // Without a terminal a line every ten seconds, and the last.
        let due = self
            .last_line
            .is_none_or(|at| at.elapsed() > Duration::from_secs(10));
        if !self.live && !due && report.step != self.steps {
            return;
        }
        self.last_line = Some(Instant::now());
        let left = (self.steps - report.step) as f64 * self.seconds / self.done as f64;
        let line = format!(
            "step {}/{}  loss {:.4}  gradient {:.3}  rate {:.2e}  {:.0} tokens/s  {} left",
            report.step,
            self.steps,
            report.loss,
            report.gradient_norm,
            report.rate,
            self.tokens as f64 / self.seconds,
            minutes(left)
        );
        match self.live {
            true => eprint!("\r\x1b[2K{line}"),
            false => eprintln!("{line}"),
        }
        if self.live && report.step == self.steps {
            eprintln!();
        }
    }
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
