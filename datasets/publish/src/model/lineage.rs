//! Collects training, data and evaluation of a model from files, and renders the model card.

use std::fmt::Write as _;
use std::path::Path;

use pybench_datasets::scrub::Scrubber;
use pybench_run::RunError;
use serde_json::Value;

use super::super::Package;
use super::weights::Weights;
use super::{Content, MAX_TEXT_BYTES, ModelArgs, bad_file, evidence, read};

/// Files in the folder of a training run.
const TRAINING_FILES: [&str; 4] = [
    "results.json",
    "metrics.jsonl",
    "loss.svg",
    "learning_rate.svg",
];
/// Files of an evaluation report.
const REPORT_FILES: [&str; 2] = ["report.md", "report.json"];

/// Training, data and evaluation of a model, as far as files state them.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    recipe: Option<String>,
    results: Value,
    plots: Vec<&'static str>,
    report: Option<String>,
    /// Name of this model in the report.
    label: Option<String>,
}

impl Lineage {
    /// Add all existing files to the package, scrubbed.
    pub(super) fn collect(
        folder: &Path,
        args: &ModelArgs,
        package: &mut Package,
    ) -> Result<Self, RunError> {
        let scrubber = Scrubber::of_machine();
        let mut lineage = Self::default();
        let run = evidence::run_of(folder);
        for (name, run) in run
            .iter()
            .flat_map(|run| TRAINING_FILES.map(|name| (name, run)))
        {
            let path = run.join(name);
            if path.is_file() {
                let text = clean(&path, &scrubber)?;
                if name == "results.json" {
                    let parsed = serde_json::from_str(&text);
                    lineage.results = parsed.map_err(|e| bad_file(&path, &e.to_string()))?;
                }
                if name.ends_with(".svg") {
                    lineage.plots.push(name);
                }
                package.bytes(&format!("training/{name}"), text)?;
            }
        }
        let results = evidence::results(folder)?;
        let given = args.recipe.as_deref();
        if let Some(path) = evidence::recipe(folder, given, &results, &mut package.notes)? {
            let text = clean(&path, &scrubber)?;
            package.bytes("training/recipe.toml", text.clone())?;
            lineage.recipe = Some(text);
        }
        if let Some(report) = &args.report {
            lineage.label = evidence::label(folder, report, &mut package.notes)?;
            for name in REPORT_FILES {
                let text = clean(&report.join(name), &scrubber)?;
                package.bytes(&format!("evaluation/{name}"), text.clone())?;
                if name == "report.md" {
                    lineage.report = Some(text);
                }
            }
        }
        Ok(lineage)
    }

    pub(super) fn card(
        &self,
        args: &ModelArgs,
        license: &str,
        repo: Option<&str>,
        content: &Content,
        weights: &Weights,
        template: bool,
    ) -> String {
        let title = repo.unwrap_or("PATH_OR_REPO");
        let mut text = header(args, license, content);
        let _ = write!(text, "# {}\n\n", title.rsplit('/').next().unwrap_or(title));
        let (parameters, dtypes) = (weights.parameters, weights.dtypes.join(", "));
        text += &match content {
            Content::Adapter(adapter) => adapter.description(parameters, &dtypes, title),
            Content::Model(kind) => format!(
                "A `{kind}` of {parameters} parameters ({dtypes}), trained on trajectories of agents that solve tasks on \
                 files with a Python interpreter.\n\n{}",
                usage(title, template)
            ),
        };
        text += &self.training();
        text += &self.data(args);
        text += &self.evaluation();
        text += "\n## Known limits\n\n- The model writes programs. Run them only in a sandbox.\n\
                 - The loss on held-out conversations measures how well the model predicts text, not how many tasks it solves.\n";
        if self.report.is_none() {
            text += "- There is no evaluation on tasks.\n";
        }
        text
    }

    fn training(&self) -> String {
        let mut text = String::from("\n## Training\n\n");
        let results = &self.results;
        if let Some(steps) = results["steps"].as_u64() {
            let _ = writeln!(text, "{steps} steps.");
            if let Some(bytes) = results["memory"]["measured"].as_u64() {
                let _ = writeln!(text, "Peak memory: {:.2} GB.", bytes as f64 / 1e9);
            }
            if let Some(recipe) = results["recipe"].as_str() {
                let _ = writeln!(text, "Digest of the recipe: `{recipe}`.");
            }
            text.push('\n');
        }
        for name in &self.plots {
            let _ = writeln!(
                text,
                "![{}](training/{name})\n",
                name.trim_end_matches(".svg")
            );
        }
        match &self.recipe {
            Some(recipe) => text += &format!("{}\n", fenced("toml", recipe)),
            None => text += "The recipe is not available.\n",
        }
        text
    }

    fn data(&self, args: &ModelArgs) -> String {
        let mut text = String::from("\n## Data\n\n");
        for dataset in &args.dataset {
            let _ = writeln!(
                text,
                "- [{dataset}](https://huggingface.co/datasets/{dataset})"
            );
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
            ("unseen_files", "conversations about unseen files"),
            ("held_out_templates", "conversations of held-out templates"),
            ("unseen_wordings", "composed tasks in unseen wordings"),
            (
                "unseen_pairs",
                "composed tasks with unseen pairs of operations",
            ),
            ("unseen_operations", "composed tasks with unseen operations"),
        ];
        let mut rows = String::new();
        for (group, words) in groups {
            let cell = |when: &str| self.results[when][group].as_f64();
            if let (Some(before), Some(after)) = (cell("before"), cell("after")) {
                let _ = writeln!(rows, "| {words} | {before:.4} | {after:.4} |");
            }
        }
        if !rows.is_empty() {
            text += "Mean loss on held-out conversations, in nats per trained token:\n\n\
                     | held out | before | after |\n| --- | ---: | ---: |\n";
            text += &rows;
            text.push('\n');
        }
        if let Some(label) = &self.label {
            let _ = writeln!(text, "In this report the model is called `{label}`.\n");
        }
        match &self.report {
            // Shift the headings, because the report is below a heading of the card.
            Some(report) => {
                for line in report.lines() {
                    let mark = if line.starts_with('#') { "##" } else { "" };
                    let _ = writeln!(text, "{mark}{line}");
                }
            }
            None if rows.is_empty() => text += "There is no evaluation.\n",
            None => {}
        }
        text
    }
}

fn clean(path: &Path, scrubber: &Scrubber) -> Result<String, RunError> {
    let bytes = read(path, MAX_TEXT_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| bad_file(path, "not UTF-8 text"))?;
    Ok(scrubber.text(&text).text)
}

fn header(args: &ModelArgs, license: &str, content: &Content) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let (library, bases) = match content {
        Content::Model(_) => ("transformers", &args.base_model),
        Content::Adapter(adapter) => ("peft", &vec![adapter.base.clone()]),
    };
    let mut text = format!(
        "---\nlibrary_name: {library}\npipeline_tag: text-generation\nlicense: {}\n",
        quoted(license)
    );
    if library == "peft" {
        text += "base_model_relation: adapter\n";
    }
    for (name, items) in [("base_model", bases), ("datasets", &args.dataset)] {
        if !items.is_empty() {
            let _ = writeln!(text, "{name}:");
        }
        for item in items {
            let _ = writeln!(text, "- {}", quoted(item));
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

/// A fenced code block. The fence is longer than any sequence of backticks in the text.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_longer_than_backticks_in_the_text() {
        assert_eq!(fenced("toml", "a"), "```toml\na\n```");
        assert!(fenced("toml", "```").starts_with("````toml"));
    }

    #[test]
    fn the_card_states_what_is_known_and_what_is_missing() {
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
        let weights = Weights {
            parameters: 7,
            dtypes: vec!["BF16".into()],
            files: vec![],
        };
        let content = Content::Model("llama".into());
        let card = lineage.card(&args, "mit", Some("o/n"), &content, &weights, true);
        for expected in [
            "license: \"mit\"",
            "base_model:\n- \"o/base: x\"",
            "`llama` of 7 parameters (BF16)",
            "16 steps",
            "| a\\|b | 3 | 5 | 2 | 1.0 | 100.0 % |",
            "| conversations about unseen files | 2.0000 | 1.5000 |",
            "### Report",
            "The recipe is not available",
            "apply_chat_template",
        ] {
            assert!(card.contains(expected), "{expected} is missing in\n{card}");
        }
        let bare = Lineage::default().card(&args, "mit", None, &content, &weights, false);
        assert!(
            bare.contains("Not stated.") && bare.contains("There is no evaluation."),
            "{bare}"
        );
    }
}
