//! The loss on conversations that are not trained on, by what training rows lack of them, or on preference pairs.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use pybench_training_data::{Conversation, RecordKind, Renderer, Source, read};
use pybench_types::held_out::Unseen;
use tch::Device;

use super::dataset::{Batch, Dataset, TokenizedDocument, render_documents};
use super::dpo::{DpoConfig, PreferenceMetrics, PreferenceSums};
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

/// What is held out of training.
#[derive(Default)]
pub(super) struct HeldOutData {
    /// The conversations of each group.
    groups: [Vec<TokenizedDocument>; GROUPS.len()],
    /// Preference pairs; the log-probabilities of the reference model are added later.
    pub(super) pairs: Option<HeldOutPairs>,
}

/// Preference pairs that are not trained on.
pub(super) struct HeldOutPairs {
    pub(super) data: Dataset,
    /// How many of them are measured.
    pub(super) count: usize,
    dpo: DpoConfig,
}

/// What is measured of held-out data.
pub(super) struct HeldOutLoss {
    /// The losses of the groups; `None` for an empty group.
    groups: [Option<Loss>; GROUPS.len()],
    pairs: Option<PairMeasures>,
}

/// Means over held-out pairs.
#[derive(Clone, Copy)]
struct PairMeasures {
    loss: f64,
    metrics: PreferenceMetrics,
    count: usize,
}

/// The key of the loss of held-out pairs in results.
pub(super) const PAIR_LOSS: &str = "preference_loss";

impl HeldOutPairs {
    fn load(
        source: Source,
        count: usize,
        (recipe, dpo): (&Recipe, &DpoConfig),
        (renderer, vocab, cache): (&Renderer, i64, &Path),
    ) -> Result<Self> {
        let source = Source {
            kind: RecordKind::Preference,
            ..source
        };
        let data = Dataset::load_sources(&[source], recipe, renderer, vocab, cache)?;
        Ok(Self {
            count: data.pair_count().min(count),
            data,
            dpo: dpo.clone(),
        })
    }

    fn evaluate(&self, model: &Model, device: Device) -> Result<Option<PairMeasures>> {
        let (mut loss, mut sums) = (Loss::default(), PreferenceSums::default());
        for pair in 0..self.count {
            let batch = self.data.batch(&[vec![2 * pair, 2 * pair + 1]], device)?;
            let logps = model.document_log_probabilities(&batch.ids, &batch.layout, &batch.targets);
            let sft_scale = 1.0 / batch.chosen_tokens().max(1.0);
            let (of_pair, measured) = batch.pair_loss(&self.dpo, &logps, sft_scale);
            loss += of_pair.loss;
            sums += measured;
        }
        Ok((self.count > 0).then(|| PairMeasures {
            loss: loss.mean(),
            metrics: sums.means(self.count as f64),
            count: self.count,
        }))
    }
}

impl HeldOutData {
    /// Reads what the recipe holds out. Pairs are tokenized with the cache folder `cache`, for an embedding of `vocab`
    /// rows.
    pub(super) fn load(
        recipe: &Recipe,
        renderer: &Renderer,
        vocab: i64,
        cache: &Path,
    ) -> Result<Self> {
        let mut groups = [const { Vec::new() }; GROUPS.len()];
        let Some(config) = &recipe.held_out else {
            return Ok(Self::default());
        };
        let source = Source {
            prefix: config.prefix.clone(),
            ..Source::from_path(&config.path)
        };
        if let (RecordKind::Preference, Some(dpo)) = (config.kind, &recipe.dpo) {
            let (of_run, with) = ((recipe, dpo), (renderer, vocab, cache));
            let pairs = HeldOutPairs::load(source, config.max_conversations, of_run, with)?;
            return Ok(Self {
                groups,
                pairs: Some(pairs),
            });
        }
        let all = read(&source)?;
        for ((unseen, _, _), documents) in GROUPS.iter().zip(&mut groups) {
            let chosen = all.iter().filter(|c| c.unseen == *unseen);
            let chosen: Vec<Conversation> =
                chosen.take(config.max_conversations).cloned().collect();
            *documents = render_documents(renderer, &chosen, recipe.train.max_seq_len)?;
        }
        Ok(Self {
            groups,
            pairs: None,
        })
    }

    pub(super) fn evaluate(&self, model: &Model, device: Device) -> Result<HeldOutLoss> {
        let mut losses = [None; GROUPS.len()];
        for (documents, of_group) in self.groups.iter().zip(&mut losses) {
            let mut loss = Loss::default();
            for number in 0..documents.len() {
                let batch = Batch::new(documents, &[vec![number]], device)?;
                loss += model.evaluate(&batch.ids, &batch.layout, &batch.targets);
            }
            *of_group = (loss.weight > 0.0).then_some(loss);
        }
        let pairs = self.pairs.as_ref();
        let pairs = pairs
            .map(|pairs| pairs.evaluate(model, device))
            .transpose()?;
        Ok(HeldOutLoss {
            groups: losses,
            pairs: pairs.flatten(),
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
    /// The groups that have a loss: key, name, loss.
    fn groups(&self) -> impl Iterator<Item = (&'static str, &'static str, Loss)> {
        let groups = GROUPS.iter().zip(self.groups);
        groups.filter_map(|((_, key, name), loss)| Some((*key, *name, loss?)))
    }

    pub(super) fn print(&self, when: &str) {
        for (_, name, loss) in self.groups() {
            let (mean, weight) = (loss.mean(), loss.weight);
            println!("loss {when}, {name}: {mean:.4} nats per token ({weight} tokens)");
        }
        if let Some(PairMeasures {
            loss,
            metrics,
            count,
        }) = self.pairs
        {
            println!(
                "loss {when}, held-out pairs: {loss:.4}, margin {:.4}, accuracy {:.2} ({count} pairs)",
                metrics.rewards_margins, metrics.rewards_accuracies
            );
        }
    }

    /// The mean of each group by its key, and what is measured of pairs. Files and templates are always there, null for an empty group.
    pub(super) fn json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({"unseen_files": null, "held_out_templates": null});
        for (key, _, loss) in self.groups() {
            json[key] = loss.mean().into();
        }
        if let Some(pairs) = &self.pairs {
            json[PAIR_LOSS] = pairs.loss.into();
            for (name, value) in pairs.metrics.named() {
                json[name] = value.into();
            }
        }
        json
    }
}
