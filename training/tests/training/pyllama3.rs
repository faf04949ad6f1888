//! The paper's recipe, both stages, on a tiny model; and its dry run.

use std::path::Path;
use std::process::Command;

use pybench_training::model::ModelConfig;
use pybench_training::train::{Limits, PlanTarget, Recipe, RecipeStage, RunPlan};

use crate::run::Project;
use crate::sources::{code_act, recipe_of, starcoder};
use crate::support::data;

fn pyllama3() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/pyllama3.toml");
    path.display().to_string()
}

/// A recipe that is the paper's but for its model, data and size.
fn tiny(project: &Project) {
    let texts: Vec<_> = (0..60)
        .map(|n| format!("print({n})\n").repeat(1 + n % 4))
        .collect();
    starcoder(&project.path("notebooks/jupyter-a.parquet"), &texts);
    code_act(&project.path("trajectories.parquet"), 30);
    let at = |name: &str| project.path(name).display().to_string();
    let text = format!(
        "extends='{}'\nmodel='{}'\n[held_out]\npath='{}'\n[train]\nmax_seq_len=256\nbatch_size=2\ndtype='float32'\n[checkpoint]\nsave_steps=2\n[stage.cpt]\ndata=[{{path='{}',kind='text'}}]\n[stage.cpt.optimizer]\nlearning_rate=0.01\nwarmup_steps=0\n[stage.sft]\ndata=[{{path='{}'}}]\n[stage.sft.optimizer]\nlearning_rate=0.01\nwarmup_steps=0\n",
        pyllama3(),
        at("start"),
        at("test.jsonl"),
        at("notebooks"),
        at("trajectories.parquet")
    );
    recipe_of(&project.path("recipe.toml"), &text);
}

fn results(project: &Project, stage: &str) -> serde_json::Value {
    let path = project.path(&format!("out/{stage}/results.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn both_stages_run_and_the_second_begins_where_the_first_ended() {
    let project = Project::new("max_steps=1");
    tiny(&project);
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let (cpt, sft) = (results(&project, "cpt"), results(&project, "sft"));
    assert_eq!(cpt["after"], sft["before"], "{cpt} {sft}");
    assert_ne!(cpt["before"], cpt["after"]);
    let loss = |when: &str| sft[when]["unseen_files"].as_f64().unwrap();
    assert!(loss("after") < loss("before"), "{sft}");
    assert_eq!(cpt["mixture"][0]["records"], 60);
    // The model goes out with the recipe's template and stops where its turns end.
    let template =
        std::fs::read_to_string(project.path("out/sft/model/chat_template.jinja")).unwrap();
    assert!(template.contains("<|eot_id|>"));
    let generation = std::fs::read(project.path("out/sft/model/generation_config.json")).unwrap();
    let generation: serde_json::Value = serde_json::from_slice(&generation).unwrap();
    let ends = generation["eos_token_id"].as_array().unwrap();
    assert!(ends.contains(&506.into()), "{generation}");
    // Done is done.
    let bits = || std::fs::read(project.path("out/sft/model/model.safetensors")).unwrap();
    let before = bits();
    let (good, text) = project.run("out");
    assert!(good && text.matches("already done").count() == 2, "{text}");
    assert!(before == bits());
}

#[test]
fn a_base_model_without_a_template_learns_texts_and_refuses_conversations() {
    let project = Project::new("max_steps=1");
    tiny(&project);
    let config = project.path("start/tokenizer_config.json");
    std::fs::write(
        config,
        r#"{"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}"#,
    )
    .unwrap();
    let at = |name: &str| project.path(name).display().to_string();
    let recipe = |data: &str| {
        let text = format!(
            "name='a'\nmodel='{}'\n[train]\nmax_seq_len=64\nmax_steps=1\n[[data]]\n{data}\n",
            at("start")
        );
        recipe_of(&project.path("recipe.toml"), &text);
    };
    recipe(&format!("path='{}'\nkind='text'", at("notebooks")));
    let (good, text) = project.run("texts");
    assert!(good, "{text}");
    recipe(&format!("path='{}'", at("trajectories.parquet")));
    let (good, text) = project.run("talks");
    assert!(!good && text.contains("chat_template"), "{text}");
}

#[test]
fn a_dry_run_of_the_paper_tells_tokens_steps_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
        .args(["run", "pyllama3", "--dry-run"])
        .current_dir(folder.path())
        .env("PYBENCH_CACHE", folder.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    for words in [
        "stage cpt",
        "stage sft",
        "3091 documents, 6234547 tokens",
        "7139 documents",
        "66383 documents",
        "steps of 64 rows of 8192",
        "memory",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // 8.03 billion parameters.
    assert!(
        text.contains("weights 29.9") || text.contains("weights 14.9"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "a dry run leaves nothing"
    );
}

#[test]
fn our_template_is_that_of_transformers() {
    let template = Path::new(&pyllama3())
        .parent()
        .unwrap()
        .join("templates/llama3.jinja");
    let folder = data("templates/llama3");
    let ours = pybench_training_data::Renderer::load_with(&folder, Some(&template)).unwrap();
    let lines = std::fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let messages: Vec<pybench_training_data::Message> =
            serde_json::from_value(line["messages"].clone()).unwrap();
        let text = ours.template.render(&messages, false).unwrap();
        assert_eq!(text, line["text"].as_str().unwrap());
    }
}

/// A preset with the shape that it names.
fn preset(name: &str) -> (Recipe, ModelConfig) {
    let folder = Path::new(&pyllama3()).parent().unwrap().to_owned();
    let mut stages = RecipeStage::load(&folder.join(format!("{name}.toml"))).unwrap();
    assert_eq!(stages.len(), 1, "{name} is one run");
    let recipe = stages.remove(0).recipe;
    assert_eq!(recipe.name, name);
    let shape = std::fs::read(recipe.model_config.as_ref().unwrap()).unwrap();
    let config = ModelConfig::parse(&shape).unwrap();
    assert_eq!(config.parameters(), 8_030_261_248);
    (recipe, config)
}

#[test]
fn presets_fit_the_devices_that_they_are_for() {
    const GB: u64 = 1_000_000_000;
    let devices = [
        ("llama3-8b-full", PlanTarget::gpus(1), 80, 128),
        ("llama3-8b-full-8gpu", PlanTarget::gpus(8), 80, 1000),
        ("llama3-8b-full-24gb", PlanTarget::gpus(1), 24, 64),
        ("llama3-8b-cpu-full", PlanTarget::cpu(1), 0, 24),
        ("llama3-8b-lora", PlanTarget::gpus(1), 40, 64),
        ("llama3-8b-qlora", PlanTarget::gpus(1), 24, 64),
        ("llama3-8b-cpu", PlanTarget::cpu(1), 0, 24),
    ];
    for (name, target, gpu, host) in devices {
        let (recipe, config) = preset(name);
        let plan = RunPlan::new(&recipe, &config, &target);
        let limits = |host: u64, gpu: u64| Limits {
            host: Some(host * GB),
            device: Some(gpu * GB),
        };
        let refusal = plan.refusal(&recipe, &config, limits(host, gpu));
        assert_eq!(refusal, None, "{name}: {}", plan.describe());
        // A byte less than the peak is too little.
        let (peak_host, peak_gpu) = plan.peak();
        let less = match gpu {
            0 => Limits {
                host: Some(peak_host - 1),
                device: None,
            },
            _ => Limits {
                host: None,
                device: Some(peak_gpu - 1),
            },
        };
        let refusal = plan.refusal(&recipe, &config, less).unwrap();
        assert!(refusal.contains("GiB are available"), "{refusal}");
    }
}

fn dry_run(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
        .args(["run", "--dry-run"])
        .args(arguments)
        .current_dir(folder.path())
        .env("PYBENCH_CACHE", folder.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn gpus_are_planned_for_without_one() {
    let eight = [
        "--device",
        "cuda",
        "--gpus",
        "8",
        "--gpu-memory",
        "80",
        "--mfu",
        "0.5",
    ];
    let (code, text) = dry_run(&[&["llama3-8b-full-8gpu"], &eight[..]].concat());
    assert_eq!(code, Some(0), "{text}");
    for words in [
        "185 documents, 189076 tokens",
        "steps of 64 rows of 8192",
        "524288 tokens and 2.403e16 FLOPs per step",
        "at 50 % MFU of 312.000 TFLOP/s per GPU",
        "GPU    host",
        "checkpoint",
        "disk: 3 checkpoints",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (code, text) = dry_run(&["llama3-8b-full", "--gpu-memory", "24"]);
    assert_eq!(code, Some(4), "{text}");
    for words in [
        "needs",
        "of a GPU's memory, and 22.35 GiB are available",
        "[lora]",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (code, text) = dry_run(&["llama3-8b-cpu", "--device", "cpu", "--host-memory", "4"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(
        text.contains("of main memory, and 3.73 GiB are available"),
        "{text}"
    );
    let wrong = Command::new(env!("CARGO_BIN_EXE_pybench-train"))
        .args(["run", "llama3-8b-full", "--gpus", "8"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2), "only a dry run plans");
}
