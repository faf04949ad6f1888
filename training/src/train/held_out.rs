//! The loss on conversations that are not trained on, by what training rows lack of them.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use pybench_training_data::{Conversation, Renderer, Source, read};
use pybench_types::held_out::Unseen;
use tch::Device;

use super::dataset::{Batch, TokenizedDocument, render_documents};
use super::metrics::keep_steps;
use super::recipe::Recipe;
use crate::model::{Loss, Model};

/// Groups of held-out conversations by what training rows lack of them: key in results, and name.
pub(super) const GROUPS: [(Unseen, &str, &str); 5] = [
    (Unseen::Files, "unseen_files", "unseen files"),
    (Unseen::Template, "held_out_templates", "held-out templates"),
    (Unseen::Wordings, "unseen_wordings", "unseen wordings"),
    (Unseen::Pairs, "unseen_pairs", "unseen pairs of operations"),
    (Unseen::Operations, "unseen_operations", "unseen operations"),
];

/// The conversations of each group.
pub(super) struct HeldOutData([Vec<TokenizedDocument>; GROUPS.len()]);

/// The losses of the groups; `None` for an empty group.
pub(super) struct HeldOutLoss([Option<Loss>; GROUPS.len()]);

impl HeldOutData {
    pub(super) fn load(recipe: &Recipe, renderer: &Renderer) -> Result<Self> {
        let mut groups = [const { Vec::new() }; GROUPS.len()];
        let Some(config) = &recipe.held_out else {
            return Ok(Self(groups));
        };
        let source = Source {
            prefix: config.prefix.clone(),
            ..Source::from_path(&config.path)
        };
        let all = read(&source)?;
        for ((unseen, _, _), documents) in GROUPS.iter().zip(&mut groups) {
            let chosen = all.iter().filter(|c| c.unseen == *unseen);
            let chosen: Vec<Conversation> =
                chosen.take(config.max_conversations).cloned().collect();
            *documents = render_documents(renderer, &chosen, recipe.train.max_seq_len)?;
        }
        Ok(Self(groups))
    }

    pub(super) fn evaluate(&self, model: &Model, device: Device) -> Result<HeldOutLoss> {
        let mut losses = [None; GROUPS.len()];
        for (documents, of_group) in self.0.iter().zip(&mut losses) {
            let mut loss = Loss::default();
            for number in 0..documents.len() {
                let batch = Batch::new(documents, &[vec![number]], device)?;
                loss += model.evaluate(&batch.ids, &batch.layout, &batch.targets);
            }
            *of_group = (loss.weight > 0.0).then_some(loss);
        }
        Ok(HeldOutLoss(losses))
    }
}

/// Losses at several steps, written to `held_out.jsonl`.
#[derive(Debug)]
pub(super) struct HeldOutCurve(fs::File);

impl HeldOutCurve {
    /// Name of the file in the run folder.
    pub(super) const FILE: &str = "held_out.jsonl";

    /// Begins a curve in a run folder, or continues it after `done` steps.
    pub(super) fn open(out: &Path, before: &HeldOutLoss, done: u64) -> Result<Self> {
        let path = out.join(Self::FILE);
        keep_steps(&path, 1..=done)?;
        let kept = fs::read(&path)?;
        let mut curve = Self(fs::File::create(&path)?);
        curve.push(0, before)?;
        curve.0.write_all(&kept)?;
        Ok(curve)
    }

    pub(super) fn push(&mut self, step: u64, loss: &HeldOutLoss) -> Result<()> {
        let mut line = loss.json();
        line["step"] = step.into();
        Ok(self.0.write_all(format!("{line}\n").as_bytes())?)
    }
}

impl HeldOutLoss {
    /// The groups that have a loss: key, name, loss.
    fn groups(&self) -> impl Iterator<Item = (&'static str, &'static str, Loss)> {
        let groups = GROUPS.iter().zip(self.0);
        groups.filter_map(|((_, key, name), loss)| Some((*key, *name, loss?)))
    }

    pub(super) fn print(&self, when: &str) {
        for (_, name, loss) in self.groups() {
            let (mean, weight) = (loss.mean(), loss.weight);
            println!("loss {when}, {name}: {mean:.4} nats per token ({weight} tokens)");
        }
    }

    /// The mean of each group by its key. Files and templates are always there, null for an empty group.
    pub(super) fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({"unseen_files": null, "held_out_templates": null});
        for (key, _, loss) in self.groups() {
            json[key] = loss.mean().into();
        }
        json
    }
}
