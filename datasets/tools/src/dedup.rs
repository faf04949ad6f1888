//! `dataset dedup`: removes near duplicates.

use std::collections::HashMap;
use std::fmt::Write as _;

use pybench_datasets::dedup::{Clusters, DedupField, DedupSettings, Deduplicator};
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{Row, read};
use pybench_run::RunError;
use serde_json::json;

use super::{FromArgs, ToArgs, derived_card, to_run_error, write_report};

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
    /// Minimum Jaccard similarity of near duplicates (word trigrams of queries, token 5-grams of code), above 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    threshold: f64,
    /// Memory for one step, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: usize,
}

/// What rows are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CompareBy {
    /// The query
    Query,
    /// The code of all cells
    Code,
    /// Query and code: both must be nearly the same
    Both,
}

/// Result of the deduplication.
struct DedupResult {
    /// For each row, the row of its cluster that is kept (possibly itself).
    keeper: Vec<u32>,
    /// Trajectory id of each row.
    ids: Vec<String>,
}

pub(super) fn run(args: &DedupArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.check_differs_from(&from)?;
    let result = deduplicate(args)?;
    let kept = (0..result.keeper.len())
        .filter(|row| result.keeps(*row))
        .count();
    let mut text = format!(
        "{} rows, {kept} kept; {} clusters of near duplicates\n",
        result.keeper.len(),
        result.clusters().len()
    );
    if let Some(path) = &args.to.report {
        let mut lines = String::new();
        for (keeper, members) in result.clusters() {
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
        let info = derived_card(&from, &command, result.keeper.len(), kept);
        let keep = |row: usize, _: &Row| result.keeps(row);
        let written = rewrite(&from, out, keep, &ShardSettings::default(), &info);
        let digest = written.map_err(to_run_error)?.digest;
        let _ = writeln!(text, "{}: {digest}", out.display());
    }
    Ok(text)
}

impl DedupResult {
    fn keeps(&self, row: usize) -> bool {
        self.keeper
            .get(row)
            .is_some_and(|kept| *kept as usize == row)
    }

    fn clusters(&self) -> std::collections::BTreeMap<u32, Vec<u32>> {
        let clusters = Clusters {
            keeper: self.keeper.clone(),
        };
        clusters.groups()
    }
}

fn deduplicate(args: &DedupArgs) -> Result<DedupResult, RunError> {
    let from = args.from.folder()?;
    let scratch = tempfile::tempdir().map_err(RunError::io("temporary folder"))?;
    let fields: &[DedupField] = match args.by {
        CompareBy::Query => &[DedupField::Query],
        CompareBy::Code => &[DedupField::Code],
        CompareBy::Both => &[DedupField::Query, DedupField::Code],
    };
    let mut deduplicators = Vec::new();
    for field in fields {
        let folder = scratch.path().join(format!("{field:?}"));
        std::fs::create_dir(&folder).map_err(RunError::io("temporary folder"))?;
        let settings = DedupSettings {
            field: *field,
            threshold: args.threshold,
            memory: args.memory.max(1) << 20,
        };
        deduplicators.push((
            *field,
            Deduplicator::new(&folder, settings).map_err(to_run_error)?,
        ));
    }
    let (mut ids, mut ranks) = (Vec::new(), Vec::new());
    for row in read::dataset(&from).map_err(to_run_error)? {
        let (_, row) = row.map_err(to_run_error)?;
        let rank = u32::MAX - row.turns;
        for (field, deduplicator) in &mut deduplicators {
            let text = match field {
                DedupField::Query => row.query.clone(),
                DedupField::Code => row.cell_texts().join("\n"),
            };
            deduplicator.add(&text, rank).map_err(to_run_error)?;
        }
        ids.push(row.trajectory_id.to_string());
        ranks.push(rank);
    }
    let clusters: Result<Vec<Clusters>, RunError> = deduplicators
        .into_iter()
        .map(|(_, deduplicator)| deduplicator.finish().map_err(to_run_error))
        .collect();
    Ok(DedupResult {
        keeper: intersect(&clusters?, &ranks),
        ids,
    })
}

/// Combine clusterings: rows are duplicates if they share a cluster in every one. Returns the row that is kept for
/// each row.
fn intersect(clusterings: &[Clusters], ranks: &[u32]) -> Vec<u32> {
    let mut best: HashMap<Vec<u32>, u32> = HashMap::new();
    let key = |row: usize| -> Vec<u32> { clusterings.iter().map(|one| one.keeper[row]).collect() };
    for (row, rank) in ranks.iter().enumerate() {
        let kept = best.entry(key(row)).or_insert(row as u32);
        if *rank > ranks[*kept as usize] {
            *kept = row as u32;
        }
    }
    (0..ranks.len()).map(|row| best[&key(row)]).collect()
}
