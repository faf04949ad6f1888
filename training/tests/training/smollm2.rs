//! What the tests of tiny models show, on SmolLM2-135M-Instruct.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use pybench_test_needs::skip;
use pybench_training::model::{GradientCheckpointing, Model, Weights};
use pybench_training::train::{Batch, TokenizedDocument};
use pybench_training_data::{Message, Renderer};
use serde::Deserialize;
use tch::{Device, Kind, Tensor, no_grad};

use crate::processes::{assert_same_weights, finish, start};
use crate::run::Project;
use crate::support::{data, distance, gradients};

/// Each of these tests takes some gigabytes: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The model of the catalog, downloaded if necessary; `None` with a message if that fails.
fn found() -> Option<(PathBuf, MutexGuard<'static, ()>)> {
    let alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    match pybench_training::catalog::find("smollm2-135m-instruct") {
        Ok(folder) => Some((folder, alone)),
        Err(error) => {
            skip::missing_tool(format_args!("{error:#}"));
            None
        }
    }
}

#[derive(Deserialize)]
struct Expected {
    ids: Vec<i64>,
    cases: BTreeMap<String, Case>,
    conversations: Vec<Conversation>,
}

/// Norms and two projections, as in `parity/smollm2.py`.
#[derive(Deserialize)]
struct Case {
    lengths: Vec<usize>,
    loss: f64,
    logits: [f64; 3],
    gradients: BTreeMap<String, [f64; 3]>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
    ids: Vec<u32>,
}

fn expected() -> Expected {
    serde_json::from_slice(&std::fs::read(data("smollm2.json")).unwrap()).unwrap()
}

fn shadow(tensor: &Tensor) -> [f64; 3] {
    let flat = tensor.detach().to_kind(Kind::Double).view([-1]);
    let places = Tensor::arange(flat.size()[0], (Kind::Double, Device::Cpu));
    let onto = |step: f64| (&places * step).cos().dot(&flat).double_value(&[]);
    [flat.norm().double_value(&[]), onto(0.7), onto(0.81)]
}

fn assert_close(what: &str, found: [f64; 3], wanted: [f64; 3]) {
    for (found, one) in found.iter().zip(wanted) {
        let off = (found - one).abs() / wanted[0];
        assert!(off <= 1e-4, "{what}: {found} for {one}, norm {}", wanted[0]);
    }
}

fn load(folder: &std::path::Path) -> Model {
    let model = Model::load(folder, Kind::Float, Device::Cpu).unwrap();
    for (_, tensor) in model.parameters() {
        let _ = tensor.set_requires_grad(true);
    }
    model
}

/// The text cut into documents of those lengths; every token counts.
fn documents(ids: &[i64], lengths: &[usize]) -> Vec<TokenizedDocument> {
    let mut rest = ids;
    let cut = |(number, &length): (usize, &usize)| {
        let (ids, more) = rest.split_at(length);
        rest = more;
        let weights = vec![1.0; length];
        let place = number.to_string();
        TokenizedDocument {
            ids: ids.to_vec(),
            weights,
            location: place,
        }
    };
    lengths.iter().enumerate().map(cut).collect()
}

/// Mean loss and gradients of documents in parts of rows.
fn measure(
    model: &Model,
    documents: &[TokenizedDocument],
    parts: &[Vec<Vec<usize>>],
) -> (f64, BTreeMap<String, Tensor>) {
    let batches: Vec<Batch> = parts
        .iter()
        .map(|rows| Batch::new(documents, rows, Device::Cpu).unwrap())
        .collect();
    let denominator = batches.iter().map(|batch| batch.targets.weight()).sum();
    let mut sum = 0.0;
    for b in &batches {
        let keep = GradientCheckpointing::Off;
        sum += model
            .backward(&b.ids, &b.layout, &b.targets, denominator, keep)
            .sum;
    }
    (sum / denominator, gradients(model))
}

#[test]
fn numbers_are_those_of_transformers_plain_packed_padded_and_accumulated() {
    let Some((folder, _alone)) = found() else {
        return;
    };
    let (model, expected) = (load(&folder), expected());
    for (name, case) in &expected.cases {
        let documents = documents(&expected.ids, &case.lengths);
        let all: Vec<usize> = (0..documents.len()).collect();
        let alone: Vec<Vec<usize>> = all.iter().map(|&d| vec![d]).collect();
        let packed = vec![vec![all]];
        let batch = Batch::new(&documents, &packed[0], Device::Cpu).unwrap();
        let logits = no_grad(|| model.logits(&batch.ids, &batch.layout));
        assert_close(name, shadow(&logits), case.logits);
        let (loss, wanted) = measure(&model, &documents, &packed);
        assert!((loss / case.loss - 1.0).abs() <= 1e-5, "{name}: {loss}");
        for (parameter, gradient) in &wanted {
            let what = format!("{name} {parameter}");
            assert_close(&what, shadow(gradient), case.gradients[parameter]);
        }
        let parts = alone.iter().map(|row| vec![row.clone()]).collect();
        for (way, rows) in [("padded", vec![alone.clone()]), ("accumulated", parts)] {
            let (again, found) = measure(&model, &documents, &rows);
            assert!((again / loss - 1.0).abs() <= 1e-5, "{name} {way}: {again}");
            // One by one the weights of norms are sums that nearly cancel: in float32 transformers' own
            // are off by 3e-5 from float64's.
            let (mut apart, mut norm) = (0.0, 0.0);
            for (parameter, gradient) in &found {
                let off = distance(gradient, &wanted[parameter]);
                assert!(off <= 1e-4, "{name} {way} {parameter}: {off:e}");
                let size = wanted[parameter].norm().double_value(&[]);
                (apart, norm) = (apart + (off * size).powi(2), norm + size * size);
            }
            let off = (apart / norm).sqrt();
            assert!(off <= 1e-5, "{name} {way}, all gradients: {off:e}");
        }
    }
}

#[test]
fn tokens_are_those_of_transformers_and_only_replies_are_trained() {
    let Some((folder, _alone)) = found() else {
        return;
    };
    let renderer = Renderer::load(&folder).unwrap();
    let conversations = expected().conversations;
    assert!(conversations.len() >= 10);
    for Conversation { messages, ids } in conversations {
        let rendered = renderer.render(&messages).unwrap();
        assert_eq!(rendered.ids, ids);
        let trained = |index: &usize| rendered.spans[*index].trained;
        let kept = (0..ids.len()).filter(trained).map(|place| ids[place]);
        let found = renderer
            .tokenizer
            .decode(&kept.collect::<Vec<_>>())
            .unwrap();
        let replies = messages.iter().filter(|m| m.is_assistant());
        let wanted: String = replies
            .map(|m| format!("{}<|im_end|>", m.content))
            .collect();
        // Its vocabulary has no token for this character: it is lost, as it is with transformers.
        let wanted = wanted.replace('\u{1d}', "");
        // A token that starts in template text cannot be trained; at most one per reply.
        match rendered.straddling {
            0 => assert_eq!(found, wanted),
            _ => assert!(
                found.len() < wanted.len() && found.ends_with("<|im_end|>"),
                "{found} {wanted}"
            ),
        }
    }
}

const TRAIN: &str = "max_seq_len=64\nallow_trained_pad=true\nbatch_size=2\nmicro_batch_size=2\nmax_steps=3\n[optimizer]\nlearning_rate=0.00001\n";

fn weights(project: &Project, out: &str) -> Vec<u8> {
    std::fs::read(project.path(out).join("model/model.safetensors")).unwrap()
}

#[test]
#[ignore = "takes minutes; `just audit` runs it, and `test` runs it on small models"]
fn two_processes_and_one_row_at_a_time_reach_the_same_weights() {
    let Some((folder, _alone)) = found() else {
        return;
    };
    let project = Project::on(&folder, TRAIN);
    let (good, text) = project.run("at-once");
    assert!(good, "{text}");
    let single = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    let single = single.replace("micro_batch_size=2", "micro_batch_size=1");
    std::fs::write(project.path("recipe.toml"), single).unwrap();
    let (good, text) = project.run("one-by-one");
    assert!(good, "{text}");
    assert_same_weights(&project, "at-once", "one-by-one", 1e-5);
    finish(start(&project, "two", 2));
    assert_same_weights(&project, "at-once", "two", 1e-5);
    let before = Weights::open_file(&folder.join("model.safetensors")).unwrap();
    let after = project.path("two/model/model.safetensors");
    let after = Weights::open_file(&after).unwrap();
    let get = |file: &Weights| {
        let name = "model.layers.0.self_attn.q_proj.weight";
        file.tensor(name, &[576, 576], Kind::Float, Device::Cpu)
            .unwrap()
    };
    assert!(
        distance(&get(&after), &get(&before)) > 1e-6,
        "nothing was trained"
    );
}

#[test]
#[ignore = "takes minutes; `just audit` runs it, and `test` runs it on small models"]
fn killed_after_a_checkpoint_it_ends_with_the_same_bits() {
    let Some((folder, _alone)) = found() else {
        return;
    };
    let project = Project::on(
        &folder,
        &format!("{TRAIN}[checkpoint]\nsave_steps=1\nsave_total_limit=1"),
    );
    let (good, text) = project.run("whole");
    assert!(good, "{text}");
    std::fs::remove_dir_all(project.path("whole/checkpoints")).unwrap();
    let mut command: Command = project.command("killed");
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let checkpoints = project.path("killed/checkpoints");
    let there = || {
        let entries = std::fs::read_dir(&checkpoints)
            .into_iter()
            .flatten()
            .flatten();
        let mut names = entries.map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with("step-"))
    };
    while !there() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert!(
        !child.wait().unwrap().success(),
        "it was over before the kill"
    );
    let (good, text) = project.run("killed");
    assert!(good, "{text}");
    assert!(weights(&project, "whole") == weights(&project, "killed"));
}
