//! `metrics.jsonl`, TensorBoard events and the progress line.

use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use super::dpo::PreferenceMetrics;
use super::tensorboard::EventFile;
use super::trainer::StepReport;

#[derive(Debug)]
pub(super) struct Metrics {
    file: File,
    events: EventFile,
    steps: u64,
    /// Peak operations per second of all devices.
    peak: f64,
    live: bool,
    last_line: Option<Instant>,
    seconds: f64,
    tokens: usize,
    flops: f64,
    done: u64,
}

impl Metrics {
    /// Continues the files in `out` after `done` steps. Lines of later steps, which a resumed run repeats, are
    /// removed.
    pub(super) fn open(out: &Path, done: u64, steps: u64, peak: f64) -> std::io::Result<Self> {
        let path = out.join("metrics.jsonl");
        keep_steps(&path, 0..=done)?;
        Ok(Self {
            file: OpenOptions::new().append(true).open(path)?,
            events: EventFile::create(&out.join("tensorboard"), done)?,
            steps,
            peak,
            live: std::io::stderr().is_terminal(),
            last_line: None,
            seconds: 0.0,
            tokens: 0,
            flops: 0.0,
            done: 0,
        })
    }

    pub(super) fn step(&mut self, report: &StepReport) -> std::io::Result<()> {
        let mut line = serde_json::to_string(report)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        let mut scalars = vec![
            ("train/loss", report.loss),
            ("train/learning_rate", report.learning_rate),
            ("train/grad_norm", report.grad_norm),
            (
                "speed/tokens_per_second",
                report.tokens as f64 / report.seconds,
            ),
            ("speed/mfu", report.flops / report.seconds / self.peak),
        ];
        let preference = report.preference.iter();
        scalars.extend(preference.flat_map(PreferenceMetrics::named));
        self.events.scalars(report.step, &scalars)?;
        self.seconds += report.seconds;
        self.tokens += report.tokens;
        self.flops += report.flops;
        self.done += 1;
        self.show(report);
        Ok(())
    }

    fn show(&mut self, report: &StepReport) {
        // Without a terminal, print a line every ten seconds and at the last step.
        let due = self
            .last_line
            .is_none_or(|at| at.elapsed() > Duration::from_secs(10));
        if !self.live && !due && report.step != self.steps {
            return;
        }
        self.last_line = Some(Instant::now());
        let left = (self.steps - report.step) as f64 * self.seconds / self.done as f64;
        let preference = match &report.preference {
            None => String::new(),
            Some(metrics) => format!(
                "margin {:.4}  accuracy {:.2}  ",
                metrics.rewards_margins, metrics.rewards_accuracies
            ),
        };
        let line = format!(
            "step {}/{}  loss {:.4}  {preference}grad norm {:.3}  lr {:.2e}  {:.0} tokens/s  MFU {:.0} %  {} left",
            report.step,
            self.steps,
            report.loss,
            report.grad_norm,
            report.learning_rate,
            self.tokens as f64 / self.seconds,
            100.0 * self.flops / self.seconds / self.peak,
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

/// Removes the lines of other steps from a JSON Lines file, which need not exist.
pub(super) fn keep_steps(path: &Path, steps: RangeInclusive<u64>) -> std::io::Result<()> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_kept = |line: &&str| {
        let row: Option<serde_json::Value> = serde_json::from_str(line).ok();
        let step = row.and_then(|row| row["step"].as_u64());
        step.is_some_and(|step| steps.contains(&step))
    };
    let kept = text.lines().filter(is_kept).map(|line| format!("{line}\n"));
    fs::write(path, kept.collect::<String>())
}

/// Minutes and seconds: `3:05`.
pub(super) fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
