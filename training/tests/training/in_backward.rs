//! Updates in the backward pass (`optimizer.optimizer_in_bwd`): the same bits as updates after it.

use std::path::Path;

use pybench_training::model::ShardUnit;
use pybench_training::train::{Batch, Recipe, StepError, TokenizedDocument, Trainer};
use tch::{Device, no_grad};

use crate::processes::{finish, start};
use crate::run::{Project, assert_killed_runs_end_with_the_same_bits};
use crate::support::model;

const LEAN: &str = "bf16_update='stochastic_rounding'\nstate_dtype='8bit'\n";

/// `[train]` and `[optimizer]` of a run, with its steps, its rows per step, and no clipping.
fn sections(train: &str, optimizer: &str) -> String {
    format!(
        "{train}\n[optimizer]\nlearning_rate=0.01\nweight_decay=0.1\nmax_grad_norm=0\n{optimizer}"
    )
}

fn rewrite(project: &Project, change: impl Fn(String) -> String) {
    let path = project.path("recipe.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(text)).unwrap();
}

fn turn_on(project: &Project) {
    rewrite(project, |text| {
        text.replace(
            "max_grad_norm=0\n",
            "max_grad_norm=0\noptimizer_in_bwd=true\n",
        )
    });
}

/// The saved weights, and the losses and gradient norms of the steps.
fn left(project: &Project, out: &str) -> (Vec<u8>, Vec<f64>, Vec<f64>) {
    let model = std::fs::read(project.path(out).join("model/model.safetensors")).unwrap();
    let metrics = std::fs::read_to_string(project.path(out).join("metrics.jsonl")).unwrap();
    let column = |key: &str| -> Vec<f64> {
        let rows = metrics.lines().map(serde_json::from_str);
        rows.map(|row: Result<serde_json::Value, _>| row.unwrap()[key].as_f64().unwrap())
            .collect()
    };
    (model, column("loss"), column("grad_norm"))
}

fn assert_same(project: &Project, what: &str) {
    let (plain, ours) = (left(project, "plain"), left(project, "in-backward"));
    assert!(plain.0 == ours.0, "{what}: the weights differ");
    assert_eq!(plain.1, ours.1, "{what}: losses");
    for (plain, ours) in plain.2.iter().zip(&ours.2) {
        assert!((plain / ours - 1.0).abs() < 1e-6, "{what}: {plain} {ours}");
    }
}

#[test]
fn a_run_ends_with_the_bits_of_one_that_updates_after_the_backward_pass() {
    let tied = serde_json::json!({});
    let untied = serde_json::json!({"tie_word_embeddings": false});
    let on_disk = format!("{LEAN}offload={{disk='state'}}\n");
    let lora = "[lora]\nrank=4\nalpha=8\ndropout=0.2\n";
    let ways = [
        (&tied, "", ""),
        (
            &untied,
            "gradient_checkpointing=true",
            "state_dtype='8bit'\n",
        ),
        (&untied, "dtype='bf16'", &on_disk),
        (&tied, "dtype='bf16'", LEAN),
        (&tied, "dtype='bf16'", "offload={disk='state'}\n"),
        (&tied, "", lora),
    ];
    for (shape, train, optimizer) in ways {
        let rows = "max_seq_len=128\nbatch_size=3\nmicro_batch_size=3\nmax_steps=8";
        let project = Project::shaped(shape, &sections(&format!("{rows}\n{train}"), optimizer));
        let folder = project.path("state").display().to_string();
        rewrite(&project, |text| {
            text.replace("disk='state'", &format!("disk='{folder}'"))
        });
        let (good, text) = project.run("plain");
        assert!(good, "{text}");
        turn_on(&project);
        let (good, text) = project.run("in-backward");
        assert!(good, "{text}");
        assert_same(&project, &format!("{shape} {train:?} {optimizer:?}"));
    }
}

#[test]
fn two_processes_end_with_the_bits_of_two_that_update_after_the_backward_pass() {
    let rows = "max_seq_len=128\nbatch_size=4\nmicro_batch_size=2\nmax_steps=6\ndtype='bf16'";
    let untied = serde_json::json!({"tie_word_embeddings": false});
    let project = Project::shaped(&untied, &sections(rows, LEAN));
    finish(start(&project, "plain", 2));
    turn_on(&project);
    finish(start(&project, "in-backward", 2));
    assert_same(&project, "two processes");
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    let rows = "batch_size=2\nmicro_batch_size=2\nmax_steps=40\ndtype='bf16'";
    let project = Project::new(&format!(
        "{}optimizer_in_bwd=true\noffload={{disk='state'}}\n[checkpoint]\nsave_steps=3\nsave_total_limit=2",
        sections(rows, LEAN)
    ));
    let folder = project.path("state").display().to_string();
    rewrite(&project, |text| {
        text.replace("disk='state'", &format!("disk='{folder}'"))
    });
    assert_killed_runs_end_with_the_same_bits(&project);
}

#[test]
fn several_micro_batches_are_refused_with_the_keys_to_change() {
    let rows = "batch_size=8\nmicro_batch_size=2\nmax_steps=1";
    let project = Project::new(&sections(rows, "optimizer_in_bwd=true\n"));
    for more in [&[][..], &["--dry-run"], &["--processes", "2"]] {
        let output = project.command("out").args(more).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{text}");
        for words in [
            "one micro-batch",
            "4 micro-batches",
            "Set train.batch_size = ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

fn batch() -> Batch {
    let document = TokenizedDocument {
        ids: (0..32).map(|place| place % 7).collect(),
        weights: vec![1.0; 32],
        location: String::new(),
    };
    Batch::new(&[document], &[vec![0]], Device::Cpu).unwrap()
}

fn trainer() -> Trainer {
    let text = format!(
        "name='a'\nmodel='m'\n[[data]]\npath='d'\n[train]\nmax_seq_len=32\nmax_steps=9\n{}optimizer_in_bwd=true",
        sections("", "")
    );
    let recipe = Recipe::parse(&text, Path::new("r")).unwrap();
    Trainer::new(model("llama"), &recipe, 9).unwrap()
}

#[test]
fn a_unit_whose_gradient_is_not_finite_is_not_updated() {
    let mut trainer = trainer();
    trainer.step(0, &[batch()]).unwrap();
    let model = &mut trainer.model;
    assert_eq!(model.blocks.len(), 2);
    // The gated layer of the first block has no effect, and an enormous gradient.
    no_grad(|| {
        let _ = model.blocks[0].up.weight.fill_(1e25);
        let _ = model.blocks[0].down.weight.zero_();
    });
    let copies = |trainer: &Trainer| -> Vec<_> {
        let all = trainer.model.parameters().into_iter();
        all.map(|(name, tensor)| (name, tensor.copy())).collect()
    };
    let before = copies(&trainer);
    let error = trainer.step(1, &[batch()]).unwrap_err();
    let unit = ShardUnit::Block(0);
    assert!(
        matches!(error, StepError::UnitDiverged { step: 1, unit: found, .. } if found == unit),
        "{error}"
    );
    assert!(error.is_divergence());
    let text = error.to_string();
    assert!(
        text.contains("block 0") && text.contains("last checkpoint"),
        "{text}"
    );
    for ((name, before), (_, after)) in before.iter().zip(copies(&trainer)) {
        let is_updated = name.starts_with("model.layers.1.") || name == "model.norm.weight";
        assert_eq!(before.equal(&after), !is_updated, "{name}");
    }
}

#[test]
fn a_loss_that_is_not_finite_ends_the_step_before_any_update() {
    let mut trainer = trainer();
    no_grad(|| {
        let _ = trainer.model.norm.fill_(f64::NAN);
    });
    let before = trainer.model.embed.copy();
    let error = trainer.step(0, &[batch()]).unwrap_err();
    assert!(
        matches!(error, StepError::Diverged { what: "loss", .. }),
        "{error}"
    );
    assert!(trainer.model.embed.equal(&before));
    let error = trainer.step(0, &[batch(), batch()]).unwrap_err();
    assert!(
        matches!(error, StepError::SeveralMicroBatches { count: 2, .. }),
        "{error}"
    );
}
