//! `dataset dedup`: removes near duplicates.

use std::fmt::Write as _;
use std::path::PathBuf;

use pybench_datasets::dedup::{Clusters, DedupField, DedupSettings, RowDeduplicator, RowTexts};
use pybench_datasets::{Row, read};
use pybench_run::RunError;
use serde_json::json;

use super::{FromArgs, ToArgs, copy_rows, derived_card, to_run_error, write_report};

/// Arguments of `dataset dedup`.
#[derive(Clone, Debug, clap::Args)]
pub struct DedupArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// What to compare
    #[arg(long, value_enum, default_value_t = CompareBy::Both)]
    by: CompareBy,
    /// Minimum Jaccard similarity of near duplicates (word trigrams of queries, token 5-grams of code), from 0.35 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    threshold: f64,
    /// Memory for one step, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: usize,
}

impl DedupArgs {
    pub(super) fn source_mut(&mut self) -> &mut PathBuf {
        &mut self.from.dataset
    }
}

/// What rows are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CompareBy {
    /// The query
    Query,
    /// The code of all cells
    Code,
    /// Query and code: both must be nearly the same. Rows without code are compared by their replies
    Both,
}

/// Result of the deduplication.
struct DedupResult {
    clusters: Clusters,
    /// Trajectory id of each row.
    ids: Vec<String>,
}

pub(super) fn run(args: &DedupArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.check_differs_from(&from)?;
    let result = deduplicate(args)?;
    let clusters = &result.clusters;
    let rows = clusters.keeper.len();
    let kept = (0..rows).filter(|row| clusters.keeps(*row)).count();
    let mut text = format!(
        "{rows} rows, {kept} kept; {} clusters of near duplicates\n",
        clusters.groups().len()
    );
    if let Some(path) = &args.to.report {
        let mut lines = String::new();
        for (keeper, members) in clusters.groups() {
            let names: Vec<_> = members
                .iter()
                .map(|row| &result.ids[*row as usize])
                .collect();
            let line = json!({"kept": result.ids[keeper as usize], "members": names});
            let _ = writeln!(lines, "{line}");
        }
        write_report(path, &lines)?;
    }
    if let Some(out) = &args.to.out {
        let command = format!(
            "pybench dataset dedup --by {} --threshold {}",
            format!("{:?}", args.by).to_lowercase(),
            args.threshold
        );
        let info = derived_card(&from, &command, rows, kept);
        let keep = |row: usize, _: &Row| clusters.keeps(row);
        text += &copy_rows(&from, out, &info, keep)?;
    }
    Ok(text)
}

fn deduplicate(args: &DedupArgs) -> Result<DedupResult, RunError> {
    let from = args.from.folder()?;
    let scratch = tempfile::tempdir().map_err(RunError::io("temporary folder"))?;
    let fields: &[DedupField] = match args.by {
        CompareBy::Query => &[DedupField::Query],
        CompareBy::Code => &[DedupField::Code],
        CompareBy::Both => &[DedupField::Query, DedupField::Code],
    };
    let settings = fields.iter().map(|field| DedupSettings {
        field: *field,
        threshold: args.threshold,
        memory: args.memory.max(1) << 20,
    });
    let settings: Vec<_> = settings.collect();
    let mut deduplicator = RowDeduplicator::new(scratch.path(), &settings).map_err(to_run_error)?;
    let mut ids = Vec::new();
    for row in read::dataset(&from).map_err(to_run_error)? {
        let (_, row) = row.map_err(to_run_error)?;
        let rank = u32::MAX - row.turns;
        deduplicator
            .add(&RowTexts::of(&row), rank)
            .map_err(to_run_error)?;
        ids.push(row.trajectory_id.to_string());
    }
    Ok(DedupResult {
        clusters: deduplicator.finish().map_err(to_run_error)?,
        ids,
    })
}
