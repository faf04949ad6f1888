//! LoRA adapters in PEFT's format: what is in `adapter_config.json`, and how it is published.

use std::path::Path;

use pybench_hub::Repository;
use pybench_run::RunError;
use serde_json::Value;

use super::{MAX_TEXT_BYTES, bad_file, json};

/// PEFT's configuration of an adapter.
pub(super) const CONFIG: &str = "adapter_config.json";
/// What the trainer knows beyond it: the quantization of the frozen matrices, a fingerprint of the base model.
pub(super) const ORIGIN: &str = "pybench.json";

/// An adapter to publish.
#[derive(Debug)]
pub(super) struct Adapter {
    /// Its configuration, with the base model's name on the Hub.
    pub(super) config: Value,
    /// `owner/name` on the Hub.
    pub(super) base: String,
    pub(super) rank: u64,
    /// Whether it was trained on matrices that were quantized to NF4.
    nf4: bool,
}

impl Adapter {
    /// Reads the adapter in `folder`; `None` if there is a whole model or neither. `given` are the base models that the
    /// user names.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the configuration is broken, or if the base model's name on the Hub is unknown.
    pub(super) fn open(folder: &Path, given: &[String]) -> Result<Option<Self>, RunError> {
        let path = folder.join(CONFIG);
        if folder.join("config.json").is_file() || !path.is_file() {
            return Ok(None);
        }
        let mut config = json(&path, MAX_TEXT_BYTES)?;
        if config["peft_type"] != "LORA" {
            return Err(bad_file(&path, "not an adapter of LoRA (peft_type)"));
        }
        let rank = config["r"].as_u64().filter(|rank| *rank > 0);
        let rank = rank.ok_or_else(|| bad_file(&path, "r is missing, or not positive"))?;
        let stated = config["base_model_name_or_path"]
            .as_str()
            .unwrap_or_default();
        let base = match given {
            [only] => only.clone(),
            [] if Repository::check(stated).is_ok() && !Path::new(stated).exists() => {
                stated.to_owned()
            }
            [] => {
                return Err(bad_file(
                    &path,
                    &format!(
                        "the base model is {stated:?} on this machine; give its name on the Hub with --base-model OWNER/NAME"
                    ),
                ));
            }
            _ => {
                return Err(bad_file(
                    &path,
                    "an adapter has one base model, but --base-model names several",
                ));
            }
        };
        config["base_model_name_or_path"] = Value::from(base.as_str());
        let origin = folder.join(ORIGIN);
        let nf4 = origin.is_file() && json(&origin, MAX_TEXT_BYTES)?["nf4"] == true;
        Ok(Some(Self {
            config,
            base,
            rank,
            nf4,
        }))
    }

    /// The configuration as it is published.
    pub(super) fn config_text(&self) -> String {
        format!("{:#}\n", self.config)
    }

    /// The sentences of the card that say what it is, and how it is used. The repository is called `place` there.
    pub(super) fn description(&self, parameters: u64, dtypes: &str, place: &str) -> String {
        let (base, rank) = (&self.base, self.rank);
        let quantized = match self.nf4 {
            true => {
                " The base model's matrices were quantized to NF4 during training; on the original ones its replies differ a little."
            }
            false => "",
        };
        format!(
            "A LoRA adapter of rank {rank} for [{base}](https://huggingface.co/{base}): {parameters} parameters \
             ({dtypes}), trained on trajectories of agents that solve tasks on files with a Python interpreter.{quantized}\n\n\
             ```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n\
             tokenizer = AutoTokenizer.from_pretrained(\"{place}\")\n\
             model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(\"{base}\"), \"{place}\")\n```\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(config: &str, given: &[&str]) -> Result<Option<Adapter>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        let given: Vec<String> = given.iter().map(|&name| name.to_owned()).collect();
        Adapter::open(folder.path(), &given).map_err(|error| error.to_string())
    }

    #[test]
    fn the_base_model_has_a_name_on_the_hub() {
        let of = |base: &str| {
            format!(r#"{{"peft_type":"LORA","r":8,"base_model_name_or_path":"{base}"}}"#)
        };
        let adapter = open(&of("o/base"), &[]).unwrap().unwrap();
        assert_eq!((adapter.base.as_str(), adapter.rank), ("o/base", 8));
        let error = open(&of("/home/ann/base"), &[]).unwrap_err();
        assert!(error.contains("--base-model OWNER/NAME"), "{error}");
        let adapter = open(&of("/home/ann/base"), &["o/other"]).unwrap().unwrap();
        assert!(
            !adapter.config_text().contains("ann"),
            "{}",
            adapter.config_text()
        );
        assert!(
            open(&of("o/base"), &["a/b", "c/d"])
                .unwrap_err()
                .contains("one base model")
        );
        assert!(
            open(r#"{"peft_type":"IA3"}"#, &[])
                .unwrap_err()
                .contains("peft_type")
        );
        assert!(
            open(r#"{"peft_type":"LORA"}"#, &[])
                .unwrap_err()
                .contains("r is missing")
        );
    }
}
