//! Estimates a run from the size hints of its recipe, without downloading or tokenizing data.

use anyhow::Result;
use pybench_training_data::SizeHint;
use tch::Device;

use super::memory_plan::MemoryPlan;
use super::recipe::Recipe;
use crate::exit::bad_input;
use crate::model::ModelConfig;

/// Assumed bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;

fn tokens(hint: &SizeHint) -> u64 {
    hint.tokens
        .unwrap_or(hint.bytes.unwrap_or(0) / BYTES_PER_TOKEN)
}

/// Tokens, steps and the memory of each of `world` processes, as text. An error if a source has no size hint.
pub(super) fn estimate(recipe: &Recipe, config: &ModelConfig, world: usize) -> Result<String> {
    let (mut lines, mut seen) = (vec![], 0.0);
    for source in &recipe.data {
        let Some(hint) = &source.size_hint else {
            return Err(bad_input(format!(
                "the recipe has no size_hint for {}",
                source.title()
            )));
        };
        let tokens = tokens(hint);
        let how = match hint.tokens {
            Some(_) => "from size_hint".to_owned(),
            None => format!("estimated, {BYTES_PER_TOKEN} bytes per token"),
        };
        seen += tokens as f64 * source.weight;
        let documents = hint.documents.map(|count| format!("{count} documents, "));
        lines.push(format!(
            "{}: {}{tokens} tokens ({how}), weight {}",
            source.title(),
            documents.unwrap_or_default(),
            source.weight
        ));
    }
    let train = &recipe.train;
    let rows = (seen / train.max_seq_len as f64).ceil();
    let needed = rows * train.num_epochs.unwrap_or(1.0);
    let steps = train
        .max_steps
        .unwrap_or((needed / train.batch_size as f64).ceil() as u64);
    lines.push(format!(
        "{seen:.0} tokens per epoch, {steps} steps of {} rows of {} (estimated for full rows)",
        train.batch_size, train.max_seq_len
    ));
    // A model that is not downloaded for a dry run is assumed to be trained on a GPU.
    let plan = MemoryPlan::new(recipe, config, world, Device::Cuda(0));
    lines.push(plan.describe(recipe));
    Ok(lines.join("\n"))
}
