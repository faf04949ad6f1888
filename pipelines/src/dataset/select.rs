//! Rows by a recipe.

use std::fmt::Write as _;
use std::path::PathBuf;

use pybench::run::RunError;
use pybench_datasets::rewrite::rewrite;
use pybench_datasets::select::{Chosen, SelectRecipe, Selector};
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::{Row, read};

use super::{FromArgs, ToArgs, about, bad, put};

/// Take rows by a recipe.
#[derive(Clone, Debug, clap::Args)]
pub struct SelectArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// Recipe: a TOML file
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Licences that all files of a row must have, by SPDX; instead of the recipe's
    #[arg(long, value_name = "SPDX", value_delimiter = ',')]
    licence_allow: Vec<String>,
}

pub(super) fn run(args: &SelectArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.apart_from(&from)?;
    let recipe = recipe(args)?;
    let shown =
        toml::to_string_pretty(&recipe).map_err(|error| RunError::Internal(error.to_string()))?;
    let mut selector = Selector::new(recipe).map_err(bad)?;
    for row in read::dataset(&from).map_err(bad)? {
        selector.see(&row.map_err(bad)?.1);
    }
    let (taken, report) = selector.finish();
    if let Some(path) = &args.to.report {
        put(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    let mut text = tell(&report);
    if let Some(out) = &args.to.out {
        let about = about(&from, &shown, report.seen, report.taken);
        let keep = |row: usize, _: &Row| taken.get(row).copied().unwrap_or(false);
        let written = rewrite(&from, out, keep, &ShardSettings::default(), &about);
        let digest = written.map_err(bad)?.digest;
        let _ = writeln!(text, "{}: {digest}", out.display());
    }
    Ok(text)
}

fn recipe(args: &SelectArgs) -> Result<SelectRecipe, RunError> {
    let mut recipe = match &args.recipe {
        None => SelectRecipe::default(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(RunError::io(path.display().to_string()))?;
            toml::from_str(&text)
                .map_err(|error| RunError::BadInput(format!("{}: {error}", path.display())))?
        }
    };
    if !args.licence_allow.is_empty() {
        recipe.licence_allow.clone_from(&args.licence_allow);
    }
    Ok(recipe)
}

fn tell(report: &Chosen) -> String {
    let mut text = format!("{} rows, {} taken\n", report.seen, report.taken);
    for (rule, count) in &report.left_out {
        let _ = writeln!(text, "{count:>8}  left out by {rule}");
    }
    for (group, values) in &report.balance {
        let _ = writeln!(text, "\n{group:<24} taken     seen");
        for (value, (taken, seen)) in values {
            let _ = writeln!(text, "  {value:<20} {taken:>7} {seen:>8}");
        }
    }
    let _ = writeln!(
        text,
        "\ntasks by the share of their samples that solved them"
    );
    for (tenth, tasks) in &report.difficulty {
        let _ = writeln!(text, "  {tenth:<20} {tasks:>7}");
    }
    text
}
