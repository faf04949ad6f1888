//! Broken models and data end with an error message, never with a panic.

use pybench_training::model::{Model, SafetensorsWriter, save_model};
use tch::{Device, Kind, Tensor};

use crate::run::Project;
use crate::support::{data, model};

fn refused(project: &Project, words: &[&str]) {
    let (good, text) = project.run("out");
    assert!(!good, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(!project.path("out/model").exists());
}

const SHORT: &str = "max_steps=2";

#[test]
fn a_truncated_file_is_refused() {
    let project = Project::new(SHORT);
    let path = project.path("start/model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 7, 100, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        refused(&project, &["model.safetensors"]);
    }
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let project = Project::new(SHORT);
    let folder = project.path("start");
    let mut broken = Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
    broken.norm = Tensor::full_like(&broken.norm, f64::NAN);
    save_model(&broken, &folder, &folder).unwrap();
    refused(&project, &["model.norm.weight", "NaN"]);
}

#[test]
fn weights_of_another_shape_are_refused() {
    let project = Project::new(SHORT);
    let folder = project.path("start");
    let mut other = Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
    other.norm = Tensor::ones([17], (Kind::Float, Device::Cpu));
    save_model(&other, &folder, &folder).unwrap();
    refused(&project, &["model.norm.weight", "17"]);
}

#[test]
fn missing_weights_are_named() {
    let project = Project::new(SHORT);
    let only = vec![(
        "model.norm.weight".to_owned(),
        Tensor::ones([16], (Kind::Float, Device::Cpu)),
    )];
    let path = project.path("start/model.safetensors");
    SafetensorsWriter::write(&path, &only, &serde_json::Map::new()).unwrap();
    refused(&project, &["model.embed_tokens.weight", "missing"]);
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let project = Project::new(SHORT);
    // 48 rows of embedding for a tokenizer of more than 500.
    save_model(&model("llama"), &project.path("start"), &data("llama")).unwrap();
    refused(&project, &["embedding of 48"]);
}

#[test]
fn conversations_without_a_reply_are_refused() {
    let project = Project::new(SHORT);
    let lines = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
    std::fs::write(project.path("train.jsonl"), lines).unwrap();
    refused(&project, &["no token would be trained"]);
}

#[test]
fn a_conversation_too_long_is_named() {
    let project = Project::new(SHORT);
    let long = "word ".repeat(400);
    let line = serde_json::json!({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":long}]});
    std::fs::write(project.path("train.jsonl"), line.to_string()).unwrap();
    refused(&project, &["train.jsonl:1", "overflow"]);
}

#[test]
fn divergence_stops_the_run_and_keeps_the_batch() {
    let project = Project::new(
        "max_steps=400\n[optimizer]\nlearning_rate=1e30\nmax_grad_norm=0\n[checkpoint]\nsave_steps=1",
    );
    refused(&project, &["diverged", "bad-batch-"]);
    let kept = std::fs::read_dir(project.path("out")).unwrap().flatten();
    let names: Vec<_> = kept
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        names.iter().any(|name| name.starts_with("bad-batch-")),
        "{names:?}"
    );
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_last_one() {
    let project = Project::new("max_steps=4\n[checkpoint]\nsave_steps=2");
    assert!(project.run("out").0);
    let folder = project.path("out/checkpoints");
    std::fs::remove_dir_all(folder.join("step-00000004")).unwrap();
    std::fs::remove_dir_all(project.path("out/model")).unwrap();
    let last = folder.join("step-00000002/part-00000-of-00001.safetensors");
    let before = std::fs::read(&last).unwrap();
    // A file size limit simulates a full disk: the write fails half way.
    let command = project.command("out");
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("are intact"), "{text}");
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read(&last).unwrap(), before);
    let (good, text) = project.run("out");
    assert!(good && text.contains("resuming after step 2"), "{text}");
}
