//! Adapters: what a run leaves, merging, and adapters of others.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pybench_training::model::{
    Adapter, Layout, LoadOptions, Model, SafetensorsWriter, ScaleFormat, save_model,
};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor, no_grad};

use crate::run::{Project, losses};

const LORA: &str =
    "batch_size=4\nmax_steps=6\n[optimizer]\nlearning_rate=0.05\n[lora]\nrank=4\nalpha=8\n";

fn trained(rest: &str) -> Project {
    let project = Project::new(&format!("{rest}{LORA}"));
    let (good, text) = project.run("out");
    assert!(good && text.contains("the trained adapter is in"), "{text}");
    project
}

fn merge(adapter: &Path, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pybench-train"));
    command.arg("merge").arg(adapter).arg("--out").arg(out);
    command.output().unwrap()
}

fn logits(model: &Model) -> Tensor {
    let ids = Tensor::from_slice(&[5i64, 17, 300, 2, 9]).unsqueeze(0);
    no_grad(|| model.logits(&ids, &Arc::new(Layout::plain(1, 5))))
}

fn weights(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

fn load(folder: &Path) -> Model {
    Model::load(folder, Kind::Float, Device::Cpu).unwrap()
}

#[test]
fn a_run_leaves_an_adapter_and_the_model_that_it_makes() {
    let project = trained("");
    let adapter = Adapter::open(&project.path("out/adapter")).unwrap();
    let mut model = load(Path::new(&adapter.base));
    let before = logits(&model);
    adapter.attach(&mut model).unwrap();
    let attached = logits(&model);
    let merged = logits(&load(&project.path("out/model")));
    let distance = |a: &Tensor, b: &Tensor| (a - b).abs().max().double_value(&[]);
    assert!(distance(&attached, &merged) < 1e-4);
    assert!(distance(&before, &merged) > 1e-2, "nothing was learned");
    let names = load(&project.path("out/model")).parameters().into_iter();
    assert!(
        !names
            .map(|(name, _)| name)
            .any(|name| name.contains("lora"))
    );
}

#[test]
fn the_configuration_is_what_peft_reads() {
    let project = trained("");
    let text = std::fs::read(project.path("out/adapter/adapter_config.json")).unwrap();
    let config: Value = serde_json::from_slice(&text).unwrap();
    let wanted = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8.0, "bias": "none",
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    });
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(config[key], *value, "{key}");
    }
    let weights = std::fs::read(project.path("out/adapter/adapter_model.safetensors")).unwrap();
    let weights = String::from_utf8_lossy(&weights).into_owned();
    assert!(weights.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"));
    assert!(project.path("out/adapter/tokenizer.json").exists());
}

#[test]
fn an_interrupted_merge_is_repeated_without_training() {
    let quantized = ["nf4", "nf4_double"].map(|name| format!("lora.quantization='{name}'\n"));
    for rest in ["", "dtype='bf16'\n", &quantized[0], &quantized[1]] {
        let (train, lora) = match rest.strip_prefix("lora.") {
            Some(quantization) => ("", quantization),
            None => (rest, ""),
        };
        let project = Project::new(&format!("{train}{LORA}{lora}"));
        let (good, text) = project.run("out");
        assert!(good, "{text}");
        let whole = weights(&project.path("out/model"));
        // What a kill in the middle of the merge leaves.
        let building = project.path("out/.building-model");
        std::fs::rename(project.path("out/model"), &building).unwrap();
        std::fs::write(
            building.join("model.safetensors"),
            &whole[..whole.len() / 2],
        )
        .unwrap();
        let before = losses(&project.path("out"));
        let (good, text) = project.run("out");
        assert!(good && text.contains("merging"), "{text}");
        assert!(!text.contains("loss before"), "it trained again: {text}");
        assert!(weights(&project.path("out/model")) == whole, "{rest}");
        assert!(!building.exists());
        assert_eq!(losses(&project.path("out")), before);
        let elsewhere = project.path("merged");
        let output = merge(&project.path("out/adapter"), &elsewhere);
        assert!(output.status.success(), "{output:?}");
        assert!(weights(&elsewhere) == whole, "{rest}");
    }
}

#[test]
fn without_merging_there_is_only_the_adapter() {
    let project = trained("merge=false\n");
    assert!(!project.path("out/model").exists());
    // The recipe's decision to merge does not make another run of it.
    let recipe = project.path("recipe.toml");
    let text = std::fs::read_to_string(&recipe).unwrap();
    std::fs::write(&recipe, text.replace("merge=false\n", "")).unwrap();
    let (good, text) = project.run("out");
    assert!(good && !text.contains("loss before"), "{text}");
    assert!(project.path("out/model/model.safetensors").exists());
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let project = trained("");
    let adapter = project.path("out/adapter");
    let config = adapter.join("adapter_config.json");
    let original: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let refused = |words: &[&str]| {
        let output = merge(&adapter, &project.path("merged"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!project.path("merged").exists(), "{text}");
    };
    let changes = [
        ("peft_type", json!("IA3"), "only LORA is supported"),
        ("use_dora", json!(true), "use_dora is not supported"),
        ("bias", json!("all"), "only none is supported"),
        ("modules_to_save", json!(["lm_head"]), "modules_to_save"),
        ("r", json!(0), "r is missing"),
        ("r", json!(5), "according to config.json it must be [5,"),
        ("base_model_name_or_path", json!("/nowhere"), "/nowhere"),
    ];
    for (key, value, word) in changes {
        let mut changed = original.clone();
        changed[key] = value;
        std::fs::write(&config, changed.to_string()).unwrap();
        refused(&[word]);
    }
    std::fs::write(&config, "{").unwrap();
    refused(&["adapter_config.json"]);
    std::fs::write(&config, original.to_string()).unwrap();
    for name in [
        "model.layers.99.mlp.up_proj.lora_A.weight",
        "lm_head.weight",
    ] {
        let matrix = Tensor::zeros([4, 4], (Kind::Float, Device::Cpu));
        let tensors = [(format!("base_model.model.{name}"), matrix)];
        let path = adapter.join("adapter_model.safetensors");
        SafetensorsWriter::write(&path, &tensors, &serde_json::Map::new()).unwrap();
        refused(&[name.split(".lora").next().unwrap()]);
    }
}

/// PEFT divides by the root of the rank if asked, and records no data type.
#[test]
fn an_adapter_of_peft_is_merged_as_peft_scales_it() {
    let project = trained("");
    let adapter = project.path("out/adapter");
    std::fs::remove_file(adapter.join("pybench.json")).unwrap();
    let config = adapter.join("adapter_config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["use_rslora"] = json!(true);
    changed["lora_alpha"] = json!(4);
    std::fs::write(&config, changed.to_string()).unwrap();
    let output = merge(&adapter, &project.path("merged"));
    assert!(output.status.success(), "{output:?}");
    // 4 / sqrt(4) is 8 / 4.
    assert!(weights(&project.path("merged")) == weights(&project.path("out/model")));
}

#[test]
fn mapped_weights_compute_what_copied_ones_do() {
    let project = Project::new(LORA);
    let folder = project.path("start");
    let copied = logits(&load(&folder));
    let options = |kind, quantize| LoadOptions {
        kind,
        device: Device::Cpu,
        mapped: true,
        quantize,
    };
    let mapped = Model::load_with(&folder, &options(Kind::Float, None)).unwrap();
    assert!(logits(&mapped).equal(&copied));
    // Converted ones are copied.
    let half = Model::load_with(&folder, &options(Kind::BFloat16, None)).unwrap();
    let loaded = Model::load(&folder, Kind::BFloat16, Device::Cpu).unwrap();
    assert!(logits(&half).equal(&logits(&loaded)));
    let packed =
        Model::load_with(&folder, &options(Kind::Float, Some(ScaleFormat::Float32))).unwrap();
    let mut all = load(&folder);
    for block in &mut all.blocks {
        block
            .linears_mut()
            .into_iter()
            .for_each(|(_, linear)| linear.quantize(ScaleFormat::Float32));
    }
    assert!(logits(&packed).equal(&logits(&all)));
}

/// Another run that starts from the adapter of a run, with changes of its recipe.
fn continue_from(project: &Project, changes: &[(&str, &str)], out: &str) -> (Option<i32>, String) {
    let recipe = project.path("recipe.toml");
    let original = std::fs::read_to_string(&recipe).unwrap();
    let model = project.path("out/adapter").display().to_string();
    let start = project.path("start").display().to_string();
    let mut text = original.replace(&format!("model='{start}'"), &format!("model='{model}'"));
    assert_ne!(text, original);
    for (from, to) in changes {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replace(from, to);
    }
    std::fs::write(&recipe, text).unwrap();
    let output = project.command(out).output().unwrap();
    std::fs::write(&recipe, original).unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

fn adapter_weights(out: &Path) -> Vec<u8> {
    std::fs::read(out.join("adapter/adapter_model.safetensors")).unwrap()
}

#[test]
fn training_goes_on_from_an_adapter() {
    for lora in ["", "quantization='nf4'\n", "quantization='nf4_double'\n"] {
        let project = Project::new(&format!("{LORA}{lora}"));
        let (good, text) = project.run("out");
        assert!(good, "{text}");
        let out = project.path("out");
        // Steps that change nothing leave the adapter as it was.
        let still = [("learning_rate=0.05", "learning_rate=1e-30")];
        let (code, text) = continue_from(&project, &still, "still");
        assert_eq!(code, Some(0), "{text}");
        assert!(
            adapter_weights(&project.path("still")) == adapter_weights(&out),
            "{lora}"
        );
        assert!(weights(&project.path("still/model")) == weights(&project.path("out/model")));
        let results = losses(&project.path("still"));
        assert_eq!(results["before"], losses(&out)["after"]);
        let (code, text) = continue_from(&project, &[], "more");
        assert_eq!(code, Some(0), "{text}");
        assert!(adapter_weights(&project.path("more")) != adapter_weights(&out));
        let before = |out: &str| losses(&project.path(out))["before"].clone();
        assert_eq!(before("more"), before("still"));
        let base = |out: &str| {
            Adapter::open(&project.path(out).join("adapter"))
                .unwrap()
                .base
        };
        assert_eq!(base("more"), base("out"));
    }
}

#[test]
fn an_adapter_goes_on_only_as_it_was_trained() {
    let project = trained("");
    let lora = "[lora]\nrank=4\nalpha=8\n";
    let quantized = format!("{lora}quantization='nf4'\n");
    let targets = format!("{lora}target_modules=['q_proj']\n");
    for (change, words) in [
        ("", "add [lora] with rank = 4 and alpha = 8"),
        ("[lora]\nrank=8\nalpha=8\n", "only with lora.rank = 4"),
        ("[lora]\nrank=4\nalpha=9\n", "only with lora.alpha = 8"),
        (&quantized, "only with lora.quantization = (none)"),
        (&targets, "only with lora.target_modules = {\"down_proj\", "),
    ] {
        let (code, text) = continue_from(&project, &[(lora, change)], "refused");
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains(words), "{words}: {text}");
    }
    // Another model of the same shape in the place of the base model.
    let config = load(&project.path("start")).config;
    let other = Model::random(config, 99, Kind::Float, Device::Cpu);
    let start = project.path("start");
    save_model(&other, &start, &start).unwrap();
    let (code, text) = continue_from(&project, &[], "refused");
    assert_eq!(code, Some(3), "{text}");
    let words = "are not those that this adapter was trained on";
    assert!(text.contains(words) && text.contains("start"), "{text}");
    let output = merge(&project.path("out/adapter"), &project.path("merged"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn a_stage_goes_on_from_the_adapter_of_the_one_before() {
    let project = Project::new(&format!("merge=false\n{LORA}"));
    let recipe = project.path("recipe.toml");
    let text = std::fs::read_to_string(&recipe).unwrap();
    let staged = text.replace("seed=1\n", "seed=1\nstages=['one','two']\n");
    let stages = "[stage.one]\n[stage.two.train]\nmerge=true\n";
    std::fs::write(&recipe, format!("{staged}{stages}")).unwrap();
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let results = |stage: &str| losses(&project.path("out").join(stage));
    assert_eq!(results("two")["before"], results("one")["after"]);
    assert!(project.path("out/two/model/model.safetensors").exists());
    assert!(!project.path("out/one/model").exists());
}
