//! What a run would be, from what its recipe knows of its sources: nothing is fetched or tokenised.

use anyhow::{Result, bail};
use tch::Device;

use super::{MemoryPlan, Recipe};
use crate::data::About;
use crate::model::ModelConfig;

/// Bytes of text of one token, where nobody has counted.
const BYTES: u64 = 4;

fn tokens(about: &About) -> u64 {
    about.tokens.unwrap_or(about.bytes.unwrap_or(0) / BYTES)
}

/// Tokens, steps and memory of one of `world` processes as lines; an error where a source says nothing of itself.
pub(super) fn estimate(recipe: &Recipe, config: &ModelConfig, world: usize) -> Result<String> {
    let (mut lines, mut seen) = (vec![], 0.0);
    for source in &recipe.data {
        let Some(about) = &source.about else {
            bail!(
                "the recipe does not say how large {} is (about)",
                source.title()
            );
        };
        let tokens = tokens(about);
        let how = match about.tokens {
            Some(_) => "as the recipe says".to_owned(),
            None => format!("estimated at {BYTES} bytes each"),
        };
        seen += tokens as f64 * source.weight;
        let documents = about.documents.map(|count| format!("{count} documents, "));
        lines.push(format!(
            "{}: {}{tokens} tokens ({how}), weight {}",
            source.title(),
            documents.unwrap_or_default(),
            source.weight
        ));
    }
    let train = &recipe.train;
    let rows = (seen / train.context as f64).ceil();
    let needed = rows * train.epochs.unwrap_or(1.0);
    let steps = train
        .steps
        .unwrap_or((needed / train.rows as f64).ceil() as u64);
    lines.push(format!(
        "{seen:.0} tokens an epoch, {steps} steps of {} rows of {} (estimated, rows full)",
        train.rows, train.context
    ));
    // What is too large to be fetched for a look is not trained on a CPU.
    let plan = MemoryPlan::new(recipe, config, world, Device::Cuda(0));
    lines.push(plan.describe(recipe));
    Ok(lines.join("\n"))
}
