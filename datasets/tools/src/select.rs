//! `dataset select`: selects rows by a recipe.

use std::fmt::Write as _;
use std::path::PathBuf;

use pybench_datasets::select::{SelectRecipe, SelectionReport, Selector};
use pybench_datasets::{Row, read};
use pybench_run::RunError;

use super::{FromArgs, ToArgs, copy_rows, derived_card, to_run_error, write_report};

/// Arguments of `dataset select`.
#[derive(Clone, Debug, clap::Args)]
pub struct SelectArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    to: ToArgs,
    /// Selection recipe, a TOML file (see docs/data-quality.md). Without it all rows are selected
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Allowed licenses of input files, as comma-separated SPDX identifiers; replaces license_allow in the recipe
    #[arg(long, value_name = "SPDX", value_delimiter = ',')]
    license_allow: Vec<String>,
}

impl SelectArgs {
    pub(super) fn source_mut(&mut self) -> &mut PathBuf {
        &mut self.from.dataset
    }
}

pub(super) fn run(args: &SelectArgs) -> Result<String, RunError> {
    let from = args.from.folder()?;
    args.to.check_differs_from(&from)?;
    let recipe = recipe(args)?;
    let recipe_text =
        toml::to_string_pretty(&recipe).map_err(|error| RunError::Internal(error.to_string()))?;
    let mut selector = Selector::new(recipe).map_err(to_run_error)?;
    for row in read::dataset(&from).map_err(to_run_error)? {
        selector.add(&row.map_err(to_run_error)?.1);
    }
    let (taken, report) = selector.finish();
    if let Some(path) = &args.to.report {
        write_report(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    let mut text = summary(&report);
    if let Some(out) = &args.to.out {
        let info = derived_card(&from, &recipe_text, report.seen, report.taken);
        let keep = |row: usize, _: &Row| taken.get(row).copied().unwrap_or(false);
        text += &copy_rows(&from, out, &info, keep)?;
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
    if !args.license_allow.is_empty() {
        recipe.license_allow.clone_from(&args.license_allow);
    }
    Ok(recipe)
}

fn summary(report: &SelectionReport) -> String {
    let mut text = format!("{} rows, {} selected\n", report.seen, report.taken);
    for (rule, count) in &report.left_out {
        let _ = writeln!(text, "{count:>8}  left out by {rule}");
    }
    for (group, values) in &report.balance {
        let _ = writeln!(text, "\n{group:<20} selected     rows");
        for (value, (taken, seen)) in values {
            let _ = writeln!(text, "  {value:<18} {taken:>8} {seen:>8}");
        }
    }
    let _ = writeln!(
        text,
        "\ntasks by pass rate (share of attempts that solved the task)"
    );
    for (tenth, tasks) in &report.difficulty {
        let _ = writeln!(text, "  {tenth:<20} {tasks:>7}");
    }
    text
}
