//! Estimates tokens, steps, operations and time of a run without its data.

use std::fmt::Write;
use std::path::Path;

use pybench_training_data::Source;

use super::target::PlanTarget;
use crate::model::ModelConfig;
use crate::train::flops::{document_flops, forward_flops};
use crate::train::machine::folder_bytes;
use crate::train::recipe::Recipe;

/// Assumed bytes of text per token.
const BYTES_PER_TOKEN: u64 = 4;

/// How much a run computes.
#[derive(Clone, Debug)]
pub(in crate::train) struct Workload {
    /// A line per source.
    sources: Vec<String>,
    /// With the weights of the sources; `None` if the size of a source is unknown.
    tokens_per_epoch: Option<f64>,
    steps: Option<u64>,
    /// Mean length of a document in tokens, which decides the cost of attention.
    document: f64,
    /// Preference pairs whose log-probabilities the reference model computes; `None` if their number is unknown.
    pairs: Option<f64>,
}

/// How fast a run is assumed to compute.
#[derive(Clone, Debug)]
pub(in crate::train) struct Speed {
    /// Peak operations per second of a process.
    pub(in crate::train) peak: f64,
    /// Where that number is from.
    pub(in crate::train) source: &'static str,
    /// Model FLOPs utilization: the part of the peak that is reached.
    pub(in crate::train) mfu: f64,
}

/// Size of a source in tokens.
struct SourceSize {
    tokens: u64,
    documents: Option<u64>,
    how: String,
}

impl SourceSize {
    /// From the hint in the recipe, otherwise from the size of local files.
    fn of(source: &Source) -> Option<Self> {
        let estimated = |bytes: u64, what: &str| Self {
            tokens: bytes / BYTES_PER_TOKEN,
            documents: None,
            how: format!("estimated{what}, {BYTES_PER_TOKEN} bytes per token"),
        };
        let Some(hint) = &source.size_hint else {
            let local = source.hub.is_none();
            let bytes = if local { local_bytes(source) } else { 0 };
            return (bytes > 0).then(|| estimated(bytes, " from the size of its files"));
        };
        Some(match hint.tokens {
            Some(tokens) => Self {
                tokens,
                documents: hint.documents,
                how: "from size_hint".into(),
            },
            None => Self {
                documents: hint.documents,
                ..estimated(hint.bytes.unwrap_or(0), "")
            },
        })
    }
}

/// Bytes of the files of a local source.
fn local_bytes(source: &Source) -> u64 {
    let path: &Path = &source.path;
    if let Ok(metadata) = path.metadata()
        && metadata.is_file()
    {
        return metadata.len();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let chosen = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(&source.prefix)
    });
    let sizes = chosen.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(match metadata.is_dir() {
            true => folder_bytes(&entry.path()),
            false => metadata.len(),
        })
    });
    sizes.sum()
}

impl Workload {
    /// From what the recipe says, and the sizes of local files.
    pub(in crate::train) fn of_recipe(recipe: &Recipe) -> Self {
        let (mut lines, mut tokens, mut documents) = (vec![], Some(0.0), Some(0.0));
        for source in &recipe.data {
            let title = source.title();
            let Some(size) = SourceSize::of(source) else {
                lines.push(format!(
                    "{title}: of unknown size; give the source a size_hint"
                ));
                (tokens, documents) = (None, None);
                continue;
            };
            tokens = tokens.map(|all| all + size.tokens as f64 * source.weight);
            let counted = size.documents.map(|count| count as f64 * source.weight);
            documents = documents.zip(counted).map(|(all, count)| all + count);
            let count = size.documents.map(|count| format!("{count} documents, "));
            lines.push(format!(
                "{title}: {}{} tokens ({}), weight {}",
                count.unwrap_or_default(),
                size.tokens,
                size.how,
                source.weight
            ));
        }
        let train = &recipe.train;
        let row = train.max_seq_len as f64;
        let pairs = documents.filter(|_| recipe.dpo.is_some());
        let full = |tokens: f64| (tokens / recipe.row_tokens() as f64).ceil();
        // Pairs are not packed.
        let rows = pairs.or(tokens.map(full));
        let in_all = rows.map(|rows| rows * train.num_epochs.unwrap_or(1.0));
        let steps = in_all.map(|rows| (rows / train.batch_size as f64).ceil() as u64);
        let of_row = recipe.row_tokens() as f64 / row;
        let mean = tokens
            .zip(documents)
            .map(|(tokens, all)| tokens / (all * of_row));
        Self {
            sources: lines,
            tokens_per_epoch: tokens,
            steps: train.max_steps.or(steps),
            document: mean.filter(|mean| *mean >= 1.0).unwrap_or(row).min(row),
            pairs: rows.filter(|_| recipe.dpo.is_some()),
        }
    }

    /// Of data that was tokenized and counted; `pairs` counts all that the reference model sees.
    pub(in crate::train) fn counted(
        recipe: &Recipe,
        steps: u64,
        document: f64,
        pairs: usize,
    ) -> Self {
        Self {
            sources: vec![],
            tokens_per_epoch: None,
            steps: Some(steps),
            document: document.clamp(1.0, recipe.train.max_seq_len as f64),
            pairs: Some(pairs as f64),
        }
    }

    /// Sources, tokens and steps as text.
    pub(in crate::train) fn describe_data(&self, recipe: &Recipe) -> String {
        let (rows, row) = (recipe.train.batch_size, recipe.train.max_seq_len);
        let what = match recipe.dpo {
            Some(_) => "pairs of conversations of up to",
            None => "rows of",
        };
        let mut text = self.sources.join("\n");
        let epoch = match self.tokens_per_epoch {
            Some(tokens) => format!("{tokens:.0} tokens per epoch, "),
            None => String::new(),
        };
        let _ = match self.steps {
            Some(steps) => write!(
                text,
                "\n{epoch}{steps} steps of {rows} {what} {row} (estimated for full rows)"
            ),
            None => write!(
                text,
                "\nan unknown number of steps of {rows} {what} {row}, since the size of the data is unknown"
            ),
        };
        text
    }

    /// Operations and time as text, for full rows, or for pairs of the mean length.
    pub(in crate::train) fn describe_time(
        &self,
        recipe: &Recipe,
        config: &ModelConfig,
        target: &PlanTarget,
        speed: &Speed,
    ) -> String {
        let flops = self.step_flops(recipe, config);
        let tokens = self.step_tokens(recipe);
        let per_second = speed.peak * speed.mfu * target.processes as f64;
        let each = flops / per_second;
        let assumed = format!(
            "{:.0} % MFU of {:.3} TFLOP/s {}",
            100.0 * speed.mfu,
            speed.peak / 1e12,
            speed.source
        );
        let time = match self.steps {
            Some(steps) => format!(
                "{} for all steps, {each:.3} s each, at {assumed}",
                duration(each * steps as f64)
            ),
            None => format!("{each:.3} s per step at {assumed}"),
        };
        let text = format!("{tokens:.0} tokens and {flops:.3e} FLOPs per step; {time}");
        match (&recipe.dpo, self.pairs) {
            (None, _) => text,
            (Some(_), None) => format!(
                "{text}\nbefore the first step: the log-probabilities of the reference model for all pairs, kept in the run folder"
            ),
            (Some(_), Some(pairs)) => {
                let forward = pairs * 2.0 * forward_flops(config, self.document);
                format!(
                    "{text}\nbefore the first step: the log-probabilities of the reference model for {pairs} pairs, kept in the run folder; {}",
                    duration(forward / per_second)
                )
            }
        }
    }

    /// Tokens of a step.
    fn step_tokens(&self, recipe: &Recipe) -> f64 {
        let rows = recipe.train.batch_size as f64;
        match recipe.dpo {
            None => rows * recipe.train.max_seq_len as f64,
            Some(_) => rows * 2.0 * self.document,
        }
    }

    fn step_flops(&self, recipe: &Recipe, config: &ModelConfig) -> f64 {
        let tokens = self.step_tokens(recipe);
        let each = document_flops(config, self.document, recipe.lora.is_none());
        tokens / self.document * each
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 2.0 * 86_400.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(data: &str, train: &str) -> Recipe {
        let text = format!(
            "name='a'\nmodel='m'\n{data}\n[train]\nmax_seq_len=100\nbatch_size=4\n{train}\n"
        );
        Recipe::parse(&text, Path::new("r")).unwrap()
    }

    #[test]
    fn steps_follow_from_hints_and_weights() {
        let data = "[[data]]\npath='none'\nweight=0.5\nsize_hint={documents=20, tokens=4000}\n[[data]]\npath='none'\nsize_hint={bytes=4000}";
        let recipe = recipe(data, "num_epochs=2");
        let workload = Workload::of_recipe(&recipe);
        // 2000 + 1000 tokens are 30 rows, twice, four per step.
        assert_eq!(workload.steps, Some(15));
        let text = workload.describe_data(&recipe);
        assert!(text.contains("20 documents, 4000 tokens"), "{text}");
        assert!(
            text.contains("3000 tokens per epoch, 15 steps of 4 rows of 100"),
            "{text}"
        );
    }

    #[test]
    fn local_files_are_measured_and_unknown_sources_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train-a.jsonl"), [b'x'; 8000]).unwrap();
        std::fs::write(folder.path().join("test-a.jsonl"), [b'x'; 8000]).unwrap();
        let local = format!(
            "[[data]]\npath='{}'\nprefix='train-'",
            folder.path().display()
        );
        let workload = Workload::of_recipe(&recipe(&local, "num_epochs=1"));
        assert_eq!(workload.tokens_per_epoch, Some(2000.0));
        let unknown = recipe("[[data]]\nhub='a/b'", "num_epochs=1");
        let text = Workload::of_recipe(&unknown).describe_data(&unknown);
        assert!(text.contains("a/b: of unknown size"), "{text}");
        let fixed = recipe("[[data]]\nhub='a/b'", "max_steps=7");
        assert_eq!(Workload::of_recipe(&fixed).steps, Some(7));
    }

    #[test]
    fn time_is_operations_over_speed() {
        let json = br#"{"model_type":"llama","hidden_size":64,"intermediate_size":96,
            "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,
            "tie_word_embeddings":true}"#;
        let config = ModelConfig::parse(json).unwrap();
        let recipe = recipe("[[data]]\nhub='a/b'", "max_steps=1000");
        let workload = Workload::counted(&recipe, 1000, 50.0, 0);
        let flops = workload.step_flops(&recipe, &config);
        let attention = 6.0 * 64.0 * 50.0 * 50.0 * 2.0;
        let wanted = 6.0 * config.parameters() as f64 * 400.0 + 8.0 * attention;
        assert!((flops / wanted - 1.0).abs() < 1e-12, "{flops} {wanted}");
        let speed = Speed {
            peak: flops * 10.0,
            source: "assumed",
            mfu: 0.5,
        };
        let text = workload.describe_time(&recipe, &config, &PlanTarget::gpus(2), &speed);
        assert!(text.contains("100 s for all steps, 0.100 s each"), "{text}");
    }
}
