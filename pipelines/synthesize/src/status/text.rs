//! The text of `pybench status`.

use std::fmt;

use pybench_run::shared::Member;
use pybench_types::text::{count, dollars};

use super::{Count, Funnel};

/// Maximum characters of an example line.
const WIDTH: usize = 160;

impl fmt::Display for Funnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<u64>| value.map_or("–".to_owned(), |value| value.to_string());
        writeln!(
            f,
            "{} files → {} tasks → {} trajectories → {} accepted",
            number(self.files),
            number(self.tasks),
            self.trajectories,
            self.accepted,
        )?;
        if let Some((train, test)) = self.rows {
            writeln!(f, "dataset: {train} train rows, {test} test rows")?;
        }
        self.fmt_details(f)
    }
}

struct Details<'a>(&'a Funnel);

impl fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_details(f)
    }
}

impl Funnel {
    /// Stages, cost and failures, without the first line.
    pub fn details(&self) -> String {
        Details(self).to_string()
    }

    fn fmt_details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reports = [
            &self.faults,
            &self.ended_early,
            &self.judge,
            &self.apart_from,
        ];
        for report in reports.into_iter().flatten() {
            writeln!(f, "{}", one_line(report))?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {}", one_line(warning))?;
        }
        self.stages(f)?;
        self.cost(f)?;
        if let Some(state) = &self.in_flight {
            writeln!(
                f,
                "{}: units in work: {}, {state}",
                state.stage, state.units
            )?;
        }
        self.pace(f)?;
        for worker in &self.workers {
            describe_worker(f, worker)?;
        }
        for batch in &self.batches {
            let id = batch.remote.as_deref().unwrap_or("not submitted yet");
            let (teacher, wave, requests) = (&batch.teacher, batch.wave, batch.requests);
            writeln!(
                f,
                "{teacher}: batch round {wave}: {requests} requests pending in a batch ({id}); run the \
                 command again to continue waiting for it"
            )?;
        }
        counts(f, "queries rejected", &self.queries)?;
        counts(f, "rejected by", &self.rejected)?;
        let contaminated = match self.contaminated_allowed {
            true => "match a benchmark, but allowed in the dataset (all: contaminated.jsonl)",
            false => {
                "accepted, but left out of the dataset, since they match a benchmark (all: contaminated.jsonl)"
            }
        };
        counts(f, contaminated, &self.contaminated)?;
        counts(f, "failures (not of the model)", &self.failures)
    }

    /// Throughput, expected end and cost of the present round, and the units in work of all processes.
    fn pace(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pace) = &self.pace else {
            return Ok(());
        };
        let in_work = self.stages.iter().find(|stage| stage.stage == pace.stage);
        let in_work = in_work.map_or(0, |stage| stage.in_work);
        write!(
            f,
            "{}: units per hour: {:.1}, in work: {in_work}, left in this round: {}, which takes about {}",
            pace.stage,
            pace.per_hour,
            pace.left,
            duration(pace.seconds_left())
        )?;
        match pace.micro_usd_left {
            0 => writeln!(f),
            left => writeln!(
                f,
                " and {}; the run will have cost {} then",
                dollars(left),
                dollars(self.spent.micro_usd.saturating_add(left))
            ),
        }
    }

    fn stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stages.is_empty() {
            return Ok(());
        }
        // A column of a run that processes work on.
        let is_worked_on = self.stages.iter().any(|stage| stage.in_work > 0);
        let in_work = |cell: String| match is_worked_on {
            true => format!(" {cell:>8}"),
            false => String::new(),
        };
        let head = ["stage", "done", "failed", "pending", "time"];
        writeln!(
            f,
            "\n{:<9} {:>7} {:>7} {:>7}{} {:>9}",
            head[0],
            head[1],
            head[2],
            head[3],
            in_work("in work".to_owned()),
            head[4]
        )?;
        for stage in &self.stages {
            writeln!(
                f,
                "{:<9} {:>7} {:>7} {:>7}{} {:>9}",
                stage.stage,
                stage.done,
                stage.failed,
                stage.pending,
                in_work(stage.in_work.to_string()),
                duration(stage.seconds),
            )?;
        }
        Ok(())
    }

    fn cost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spent = &self.spent;
        write!(
            f,
            "\ncalls {} · tokens {} · {}",
            count(spent.calls),
            count(spent.tokens),
            dollars(spent.micro_usd)
        )?;
        match spent.uncertain {
            0 => writeln!(f),
            uncertain => writeln!(
                f,
                " · {uncertain} interrupted calls (counted at their full reservation)"
            ),
        }
    }
}

/// What a worker does, and what it runs on. Workers describe themselves.
fn describe_worker(f: &mut fmt::Formatter<'_>, worker: &Member) -> fmt::Result {
    let does = match (&worker.stage, worker.draining) {
        (_, true) => "drains",
        (Some(stage), false) => stage,
        (None, false) => "waits",
    };
    let (units, ended, silent) = (worker.units, worker.ended, worker.silent_seconds);
    let line = format!(
        "worker {}: {does}, units in work: {units}, ended: {ended}, last sign of life: {silent} s ago",
        worker.name
    );
    writeln!(f, "{}", one_line(&line))?;
    let machine = &worker.machine;
    if machine.program.is_empty() {
        return Ok(());
    }
    let line = format!(
        "takes {}; tier {}, {} cores, {:.1} GiB of memory free when it joined, packages {}, program {}",
        worker.stages.join(" and "),
        machine.tier,
        machine.cores,
        machine.free_mib as f64 / 1024.0,
        machine.packages,
        machine.program
    );
    writeln!(f, "         {}", one_line(&line))
}

fn counts(f: &mut fmt::Formatter<'_>, title: &str, counts: &[Count]) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}")?;
    for count in counts {
        writeln!(f, "{:>7}  {}", count.count, count.what)?;
        for example in &count.examples {
            writeln!(f, "         {}", one_line(example))?;
        }
    }
    Ok(())
}

/// Details quote models and servers, so make them one line of limited length without control characters.
fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut line: String = text.chars().take(WIDTH).map(shown).collect();
    if text.chars().nth(WIDTH).is_some() {
        line.push('…');
    }
    line
}

fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}
