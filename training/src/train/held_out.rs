//! The loss on conversations that are not trained on.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use pybench_training_data::{Conversation, Renderer, Source, read};
use tch::Device;

use super::dataset::{Batch, TokenizedDocument, render_documents};
use super::metrics::keep_steps;
use super::recipe::Recipe;
use crate::model::{Loss, Model};

/// Conversations on unseen files, and of held-out templates.
pub(super) struct HeldOutData {
    files: Vec<TokenizedDocument>,
    templates: Vec<TokenizedDocument>,
}

/// Losses of both groups; `None` for an empty group.
pub(super) struct HeldOutLoss {
    files: Option<Loss>,
    templates: Option<Loss>,
}

impl HeldOutData {
    pub(super) fn load(recipe: &Recipe, renderer: &Renderer) -> Result<Self> {
        let Some(config) = &recipe.held_out else {
            return Ok(Self {
                files: vec![],
                templates: vec![],
            });
        };
        let source = Source {
            prefix: config.prefix.clone(),
            ..Source::from_path(&config.path)
        };
        let all = read(&source)?;
        let group = |held_out: bool| -> Result<Vec<TokenizedDocument>> {
            let chosen = all.iter().filter(|c| c.held_out_template == held_out);
            let chosen: Vec<Conversation> =
                chosen.take(config.max_conversations).cloned().collect();
            render_documents(renderer, &chosen, recipe.train.max_seq_len)
        };
        Ok(Self {
            files: group(false)?,
            templates: group(true)?,
        })
    }

    pub(super) fn evaluate(&self, model: &Model, device: Device) -> Result<HeldOutLoss> {
        let group = |documents: &[TokenizedDocument]| -> Result<Option<Loss>> {
            let mut loss = Loss::default();
            for number in 0..documents.len() {
                let batch = Batch::new(documents, &[vec![number]], device)?;
                loss += model.evaluate(&batch.ids, &batch.layout, &batch.targets);
            }
            Ok((loss.weight > 0.0).then_some(loss))
        };
        Ok(HeldOutLoss {
            files: group(&self.files)?,
            templates: group(&self.templates)?,
        })
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
    pub(super) fn print(&self, when: &str) {
        for (name, loss) in [
            ("unseen files", self.files),
            ("held-out templates", self.templates),
        ] {
            if let Some(loss) = loss {
                let (mean, weight) = (loss.mean(), loss.weight);
                println!("loss {when}, {name}: {mean:.4} nats per token ({weight} tokens)");
            }
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let mean = |loss: Option<Loss>| loss.map(Loss::mean);
        serde_json::json!({"unseen_files": mean(self.files), "held_out_templates": mean(self.templates)})
    }
}
