//! Near duplicates of a dataset.

use std::collections::HashMap;
use std::fmt::Write as _;

use pybench::run::RunError;
use pybench_datasets::dedup::{Clusters, Deduplicator, Settings, View};
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{Row, read};
use serde_json::json;

use super::{FromArgs, ToArgs, about, bad, put};

/// Leave near duplicates out: of rows whose query and code are nearly the same one is kept, that with
/// the fewest replies, of equals the first.
#[derive(Clone, Debug, clap::Args)]
pub struct DedupArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// What has to be nearly the same
    #[arg(long, value_enum, default_value_t = By::Both)]
    by: By,
    /// Share of common runs of words (or tokens) from which on texts are nearly the same
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    threshold: f64,
    /// Memory for one step, MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: usize,
}

/// What has to be nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// The query.
    Query,
    /// The code of all cells together.
    Code,
    /// Both.
    Both,
}

/// Which rows are kept, by number, and the row each of the others is like.
struct Found {
    /// For each row the one that is kept in its place.
    keeper: Vec<u32>,
    ids: Vec<String>,
}

pub(super) fn run(args: &DedupArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.apart_from(&from)?;
    let found = find(args)?;
    let kept = (0..found.keeper.len())
        .filter(|row| found.keeps(*row))
        .count();
    let mut text = format!(
        "{} rows, {kept} kept; {} clusters of near duplicates\n",
        found.keeper.len(),
        found.clusters().len()
    );
    if let Some(path) = &args.to.report {
        let mut lines = String::new();
        for (keeper, members) in found.clusters() {
            let names: Vec<_> = members
                .iter()
                .map(|row| &found.ids[*row as usize])
                .collect();
            let line = json!({"kept": found.ids[keeper as usize], "members": names});
            let _ = writeln!(lines, "{line}");
        }
        put(path, &lines)?;
    }
    if let Some(out) = &args.to.out {
        let command = format!(
            "pybench dataset dedup --by {} --threshold {}",
            format!("{:?}", args.by).to_lowercase(),
            args.threshold
        );
        let about = about(&from, &command, found.keeper.len(), kept);
        let keep = |row: usize, _: &Row| found.keeps(row);
        let written = rewrite(&from, out, keep, &ShardSettings::default(), &about);
        let digest = written.map_err(bad)?.digest;
        let _ = writeln!(text, "{}: {digest}", out.display());
    }
    Ok(text)
}

impl Found {
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

fn find(args: &DedupArgs) -> Result<Found, RunError> {
    let from = args.from.folder()?;
    let scratch = tempfile::tempdir().map_err(RunError::io("temporary folder"))?;
    let views: &[View] = match args.by {
        By::Query => &[View::Query],
        By::Code => &[View::Code],
        By::Both => &[View::Query, View::Code],
    };
    let mut by_view = Vec::new();
    for view in views {
        let folder = scratch.path().join(format!("{view:?}"));
        std::fs::create_dir(&folder).map_err(RunError::io("temporary folder"))?;
        let settings = Settings {
            view: *view,
            threshold: args.threshold,
            memory: args.memory.max(1) << 20,
        };
        by_view.push((*view, Deduplicator::new(&folder, settings).map_err(bad)?));
    }
    let (mut ids, mut ranks) = (Vec::new(), Vec::new());
    for row in read::dataset(&from).map_err(bad)? {
        let (_, row) = row.map_err(bad)?;
        let rank = u32::MAX - row.turns;
        for (view, found) in &mut by_view {
            let text = match view {
                View::Query => row.query.clone(),
                View::Code => row.cell_texts().join("\n"),
            };
            found.add(&text, rank).map_err(bad)?;
        }
        ids.push(row.trajectory_id.to_string());
        ranks.push(rank);
    }
    let clusters: Result<Vec<Clusters>, RunError> = by_view
        .into_iter()
        .map(|(_, found)| found.finish().map_err(bad))
        .collect();
    Ok(Found {
        keeper: common(&clusters?, &ranks),
        ids,
    })
}

/// Rows that are in one cluster in every view; of them the best is kept.
fn common(views: &[Clusters], ranks: &[u32]) -> Vec<u32> {
    let mut best: HashMap<Vec<u32>, u32> = HashMap::new();
    let key = |row: usize| -> Vec<u32> { views.iter().map(|view| view.keeper[row]).collect() };
    for (row, rank) in ranks.iter().enumerate() {
        let kept = best.entry(key(row)).or_insert(row as u32);
        if *rank > ranks[*kept as usize] {
            *kept = row as u32;
        }
    }
    (0..ranks.len()).map(|row| best[&key(row)]).collect()
}
