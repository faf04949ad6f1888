//! A model that may leave: weights that are whole and of this configuration, a tokenizer that reads, and a card
//! with how it was trained, on what, and how it does.

mod weights;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use pybench_datasets::scrub::Scrubber;
use serde_json::Value;

use super::Package;
use crate::hub::Kind;

/// Most bytes of a configuration, a recipe or a report.
const TEXT: u64 = 16 << 20;
/// Most bytes of a tokenizer.
const TOKENIZER: u64 = 256 << 20;
/// Files of a model's folder that go with the weights.
const COMPANIONS: [&str; 8] = [
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer.model",
];
/// What a training run leaves beside its model.
const TRAINING: [&str; 4] = ["results.json", "metrics.jsonl", "loss.svg", "rate.svg"];
/// What an evaluation's report leaves.
const REPORT: [&str; 2] = ["report.md", "report.json"];

/// What only a model has.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Models")]
pub struct ModelArgs {
    /// The model's licence, as the Hub names it (apache-2.0, llama3, …)
    #[arg(long, value_name = "NAME")]
    pub licence: Option<String>,
    /// The model that it was trained from, as the Hub names it; may be given several times
    #[arg(long, value_name = "OWNER/NAME")]
    pub base_model: Vec<String>,
    /// A dataset that it was trained on, as the Hub names it; may be given several times
    #[arg(long, value_name = "OWNER/NAME")]
    pub dataset: Vec<String>,
    /// The recipe that it was trained by
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// The report of an evaluation: a folder with report.md and report.json
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// Whether a folder holds a model; of a training run, the one below it.
pub(super) fn is_model(what: &Path) -> bool {
    folder(what).join("config.json").is_file()
}

fn folder(what: &Path) -> PathBuf {
    let below = what.join("model");
    match below.join("config.json").is_file() && !what.join("config.json").is_file() {
        true => below,
        false => what.to_owned(),
    }
}

/// The repository of a model.
///
/// # Errors
/// [`RunError::BadInput`] with what keeps it from being published.
pub(super) fn package(
    what: &Path,
    repo: Option<&str>,
    args: &ModelArgs,
) -> Result<Package, RunError> {
    let folder = folder(what);
    let config = json(&folder.join("config.json"), TEXT)?;
    let licence = args.licence.clone().ok_or_else(|| {
        RunError::BadInput(
            "whoever uses a model has to know what they may: name its licence with --licence (that of \
             the model it was trained from, in most cases)"
                .into(),
        )
    })?;
    let name = config["model_type"].as_str().ok_or_else(|| {
        let path = folder.join("config.json");
        RunError::BadInput(format!("{}: no model_type", path.display()))
    })?;
    let weights = weights::check(&folder)?;
    let tokenizer = json(&folder.join("tokenizer.json"), TOKENIZER)?;
    if !tokenizer["model"].is_object() {
        let path = folder.join("tokenizer.json");
        return Err(bad(&path, "no model: it is no tokenizer"));
    }
    let title = repo.and_then(|repo| repo.split('/').nth(1));
    let title = title.map_or_else(|| run_name(&folder), str::to_owned);
    let mut package = Package::new(Kind::Model, title, owns);
    package.notes.push(format!(
        "{name}, {} parameters in {} files; every shard is as long as its header says",
        weights.parameters,
        weights.files.len()
    ));
    for file in ["config.json", "tokenizer.json"].into_iter().chain(COMPANIONS) {
        let path = folder.join(file);
        if path.is_file() {
            package.file(file, &path)?;
        }
    }
    for file in &weights.files {
        package.file(file, &folder.join(file))?;
    }
    let template = has_template(&folder)?;
    if !template {
        package.notes.push("no chat template: only for completion of text".into());
    }
    let lineage = Lineage::gather(&folder, args, &mut package)?;
    let card = lineage.card(args, &licence, repo, &config, &weights, template);
    package.with_card(card)
}

/// What this program writes into repositories of models.
fn owns(path: &str) -> bool {
    let plain = !path.contains('/');
    let weights = path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json");
    let named = ["README.md", "config.json", "tokenizer.json"];
    (plain && (weights || named.contains(&path) || COMPANIONS.contains(&path)))
        || path.starts_with("training/")
        || path.starts_with("evaluation/")
}

fn run_name(folder: &Path) -> String {
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mut names = absolute.iter().rev().map(|part| part.to_string_lossy());
    let name = names.find(|name| name != "model");
    name.map_or_else(|| "model".into(), |name| name.into_owned())
}

fn bad(path: &Path, what: &str) -> RunError {
    RunError::BadInput(format!("{}: {what}", path.display()))
}

/// A small file, bounded.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, RunError> {
    let metadata = fs::metadata(path).map_err(|error| bad(path, &error.to_string()))?;
    if metadata.len() > most {
        return Err(bad(path, &format!("larger than {} MiB", most >> 20)));
    }
    fs::read(path).map_err(RunError::io(path.display().to_string()))
}

fn json(path: &Path, most: u64) -> Result<Value, RunError> {
    serde_json::from_slice(&read(path, most)?).map_err(|error| bad(path, &error.to_string()))
}

/// Whether it knows how conversations are written.
fn has_template(folder: &Path) -> Result<bool, RunError> {
    if folder.join("chat_template.jinja").is_file() {
        return Ok(true);
    }
    let config = folder.join("tokenizer_config.json");
    let config = match config.is_file() {
        true => json(&config, TEXT)?,
        false => Value::Null,
    };
    Ok(!config["chat_template"].is_null())
}

/// How the model came about, and how it does, as far as files say it.
#[derive(Debug, Default)]
struct Lineage {
    recipe: Option<String>,
    results: Value,
    plots: Vec<&'static str>,
    report: Option<String>,
}

impl Lineage {
    /// Put what there is into the package, without what names this machine.
    fn gather(folder: &Path, args: &ModelArgs, package: &mut Package) -> Result<Self, RunError> {
        let scrubber = Scrubber::of_machine();
        let mut lineage = Self::default();
        let run = folder.parent().unwrap_or(folder);
        // Only a folder that training made is asked for what it left beside.
        let trained = folder.ends_with("model") && run.join("results.json").is_file();
        for name in TRAINING.into_iter().filter(|_| trained) {
            let path = run.join(name);
            if path.is_file() {
                let text = clean(&path, &scrubber)?;
                if name == "results.json" {
                    let parsed = serde_json::from_str(&text);
                    lineage.results = parsed.map_err(|e| bad(&path, &e.to_string()))?;
                }
                if name.ends_with(".svg") {
                    lineage.plots.push(name);
                }
                package.bytes(&format!("training/{name}"), text)?;
            }
        }
        if let Some(path) = &args.recipe {
            let text = clean(path, &scrubber)?;
            package.bytes("training/recipe.toml", text.clone())?;
            lineage.recipe = Some(text);
        }
        if let Some(folder) = &args.report {
            for name in REPORT {
                let text = clean(&folder.join(name), &scrubber)?;
                package.bytes(&format!("evaluation/{name}"), text.clone())?;
                if name == "report.md" {
                    lineage.report = Some(text);
                }
            }
        }
        Ok(lineage)
    }

    fn card(
        &self,
        args: &ModelArgs,
        licence: &str,
        repo: Option<&str>,
        config: &Value,
        weights: &weights::Weights,
        template: bool,
    ) -> String {
        let title = repo.unwrap_or("PATH_OR_REPO");
        let mut text = header(args, licence);
        let kind = config["model_type"].as_str().unwrap_or("a language model");
        let _ = write!(
            text,
            "# {}\n\nA `{kind}` of {} parameters ({}), trained on trajectories of agents that solve tasks on \
             files with a Python interpreter.\n\n{}",
            title.rsplit('/').next().unwrap_or(title),
            weights.parameters,
            weights.kinds.join(", "),
            usage(title, template)
        );
        text += &self.training();
        text += &self.data(args);
        text += &self.evaluation();
        text += "\n## Known limits\n\n- It writes programs. Run them in a sandbox, never where they can do harm.\n\
                 - Losses on held-out conversations say how well it predicts text, not how many tasks it solves.\n";
        if self.report.is_none() {
            text += "- No evaluation on tasks is given with it.\n";
        }
        text
    }

    fn training(&self) -> String {
        let mut text = String::from("\n## Training\n\n");
        let results = &self.results;
        if let Some(steps) = results["steps"].as_u64() {
            let _ = writeln!(text, "{steps} steps.");
            if let Some(bytes) = results["memory"]["measured"].as_u64() {
                let _ = writeln!(text, "Most memory taken: {:.2} GB.", bytes as f64 / 1e9);
            }
            if let Some(recipe) = results["recipe"].as_str() {
                let _ = writeln!(text, "Digest of the recipe: `{recipe}`.");
            }
            text.push('\n');
        }
        for name in &self.plots {
            let _ = writeln!(text, "![{}](training/{name})\n", name.trim_end_matches(".svg"));
        }
        match &self.recipe {
            Some(recipe) => text += &format!("{}\n", fenced("toml", recipe)),
            None => text += "No recipe is given with it.\n",
        }
        text
    }

    fn data(&self, args: &ModelArgs) -> String {
        let mut text = String::from("\n## Data\n\n");
        for dataset in &args.dataset {
            let _ = writeln!(text, "- [{dataset}](https://huggingface.co/datasets/{dataset})");
        }
        let shares = self.results["mixture"].as_array();
        let shares = shares.map(Vec::as_slice).unwrap_or_default();
        if !shares.is_empty() {
            text += "\n| source | rows | tokens | trained tokens | weight | share of an epoch |\n\
                     | --- | ---: | ---: | ---: | ---: | ---: |\n";
        }
        for share in shares {
            let source = share["source"].as_str().unwrap_or_default();
            let share_of = 100.0 * share["share"].as_f64().unwrap_or_default();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {share_of:.1} % |",
                source.replace('|', "\\|"),
                share["records"],
                share["tokens"],
                share["trained"],
                share["weight"],
            );
        }
        if args.dataset.is_empty() && shares.is_empty() {
            text += "Not stated.\n";
        }
        text
    }

    fn evaluation(&self) -> String {
        let mut text = String::from("\n## Evaluation\n\n");
        let groups = [
            ("unseen_files", "conversations on unseen files"),
            ("held_out_templates", "conversations of held-out templates"),
        ];
        let mut rows = String::new();
        for (group, words) in groups {
            let cell = |when: &str| self.results[when][group].as_f64();
            if let (Some(before), Some(after)) = (cell("before"), cell("after")) {
                let _ = writeln!(rows, "| {words} | {before:.4} | {after:.4} |");
            }
        }
        if !rows.is_empty() {
            text += "Loss in nats per token that the model has to produce:\n\n\
                     | held out | before | after |\n| --- | ---: | ---: |\n";
            text += &rows;
            text.push('\n');
        }
        match &self.report {
            // One level down: it stands below a heading of the card.
            Some(report) => {
                for line in report.lines() {
                    let mark = if line.starts_with('#') { "##" } else { "" };
                    let _ = writeln!(text, "{mark}{line}");
                }
            }
            None if rows.is_empty() => text += "None is given with it.\n",
            None => {}
        }
        text
    }
}

fn clean(path: &Path, scrubber: &Scrubber) -> Result<String, RunError> {
    let bytes = read(path, TEXT)?;
    let text = String::from_utf8(bytes).map_err(|_| bad(path, "no text"))?;
    Ok(scrubber.text(&text).text)
}

fn header(args: &ModelArgs, licence: &str) -> String {
    let word = |text: &str| Value::from(text).to_string();
    let mut text = format!(
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\nlicense: {}\n",
        word(licence)
    );
    for (name, items) in [("base_model", &args.base_model), ("datasets", &args.dataset)] {
        if !items.is_empty() {
            let _ = writeln!(text, "{name}:");
        }
        for item in items {
            let _ = writeln!(text, "- {}", word(item));
        }
    }
    text + "tags:\n- agent\n- code\n- code-interpreter\n- pybench\n---\n\n"
}

fn usage(place: &str, template: bool) -> String {
    let ask = match template {
        true => {
            "messages = [{\"role\": \"user\", \"content\": \"What is 6 times 7? Compute it.\"}]\n\
             inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors=\"pt\", \
             return_dict=True)\n"
        }
        false => "inputs = tokenizer(\"import pandas as pd\\n\", return_tensors=\"pt\")\n",
    };
    format!(
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n\
         tokenizer = AutoTokenizer.from_pretrained(\"{place}\")\n\
         model = AutoModelForCausalLM.from_pretrained(\"{place}\")\n{ask}\
         print(tokenizer.decode(model.generate(**inputs, max_new_tokens=200)[0]))\n```\n"
    )
}

/// A text between fences longer than any run of backticks in it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_owned() {
        for path in ["model-00001-of-00002.safetensors", "training/loss.svg", "README.md"] {
            assert!(owns(path), "{path}");
        }
        for path in [".gitattributes", "notes.md", "other/model.safetensors", "model.gguf"] {
            assert!(!owns(path), "{path}");
        }
    }

    #[test]
    fn fences_hold_what_is_in_them() {
        assert_eq!(fenced("toml", "a"), "```toml\na\n```");
        assert!(fenced("toml", "```").starts_with("````toml"));
    }

    #[test]
    fn the_card_says_what_is_known_and_what_is_not() {
        let lineage = Lineage {
            report: Some("# Report\n\ntext".into()),
            results: serde_json::json!({
                "steps": 16, "recipe": "abc",
                "mixture": [{"source": "a|b", "records": 3, "tokens": 5, "trained": 2, "weight": 1.0, "share": 1.0}],
                "before": {"unseen_files": 2.0}, "after": {"unseen_files": 1.5},
            }),
            ..Lineage::default()
        };
        let args = ModelArgs {
            base_model: vec!["o/base: x".into()],
            ..ModelArgs::default()
        };
        let weights = weights::Weights {
            parameters: 7,
            kinds: vec!["BF16".into()],
            files: vec![],
        };
        let config = serde_json::json!({"model_type": "llama"});
        let card = lineage.card(&args, "mit", Some("o/n"), &config, &weights, true);
        for expected in [
            "license: \"mit\"",
            "base_model:\n- \"o/base: x\"",
            "`llama` of 7 parameters (BF16)",
            "16 steps",
            "| a\\|b | 3 | 5 | 2 | 1.0 | 100.0 % |",
            "| conversations on unseen files | 2.0000 | 1.5000 |",
            "### Report",
            "No recipe is given",
            "apply_chat_template",
        ] {
            assert!(card.contains(expected), "{expected} is missing in\n{card}");
        }
        let bare = Lineage::default().card(&args, "mit", None, &config, &weights, false);
        assert!(bare.contains("Not stated.") && bare.contains("None is given"), "{bare}");
    }
}
