//! Every dtype of weights and optimizer state, LoRA and NF4 learn, and resume with the same bits.

use crate::run::{Project, losses};

/// What a run of 12 steps leaves: the model's bytes and the losses of its steps.
fn left(project: &Project, out: &str) -> (Vec<u8>, Vec<(u64, f64)>) {
    let model = std::fs::read(project.path(out).join("model/model.safetensors")).unwrap();
    let metrics = std::fs::read_to_string(project.path(out).join("metrics.jsonl")).unwrap();
    let rows = metrics
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let steps = rows.map(|row| (row["step"].as_u64().unwrap(), row["loss"].as_f64().unwrap()));
    (model, steps.collect())
}

/// Trains, deletes the last checkpoints and resumes from an earlier one. Returns the losses before and after.
fn learns_and_resumes(train: &str, rest: &str) -> (f64, f64) {
    let project = Project::new(&format!(
        "batch_size=4\nmicro_batch_size=2\nmax_steps=12\n{train}\n[checkpoint]\nsave_steps=4\nsave_total_limit=9\n{rest}"
    ));
    let (good, text) = project.run("out");
    assert!(good, "{text}");
    let whole = left(&project, "out");
    assert_eq!(whole.1.len(), 12);
    for step in ["00000008", "00000012"] {
        let folder = project.path("out/checkpoints").join(format!("step-{step}"));
        std::fs::remove_dir_all(folder).unwrap();
    }
    for folder in ["out/model", "out/adapter"] {
        let _ = std::fs::remove_dir_all(project.path(folder));
    }
    let (good, text) = project.run("out");
    assert!(good && text.contains("resuming after step 4"), "{text}");
    let resumed = left(&project, "out");
    assert_eq!(whole.1, resumed.1, "losses of {train} {rest}");
    assert!(whole.0 == resumed.0, "weights of {train} {rest}");
    let results = losses(&project.path("out"));
    let loss = |when: &str| results[when]["unseen_files"].as_f64().unwrap();
    (loss("before"), loss("after"))
}

#[test]
fn bf16_with_a_master_copy_tracks_float32() {
    let (before, float32) = learns_and_resumes("", "[optimizer]\nlearning_rate=0.01");
    assert!(float32 < 0.95 * before, "{before} {float32}");
    let (_, master) = learns_and_resumes("dtype='bf16'", "[optimizer]\nlearning_rate=0.01");
    assert!(
        (master - float32).abs() < 0.03 * (before - float32),
        "{before} {float32} {master}"
    );
    let (_, eight) = learns_and_resumes("", "[optimizer]\nlearning_rate=0.01\nstate_dtype='8bit'");
    assert!(
        (eight - float32).abs() < 0.1 * (before - float32),
        "{before} {float32} {eight}"
    );
}

#[test]
fn stochastic_rounding_with_8_bit_state_learns() {
    let (before, after) = learns_and_resumes(
        "dtype='bf16'",
        "[optimizer]\nlearning_rate=0.01\nbf16_update='stochastic_rounding'\nstate_dtype='8bit'",
    );
    assert!(after < 0.95 * before, "{before} {after}");
}

#[test]
fn dropout_of_low_rank_additions_resumes() {
    let lora = "[optimizer]\nlearning_rate=0.05\n[lora]\nrank=4\nalpha=8\n";
    let (before, with) =
        learns_and_resumes("gradient_checkpointing=true", &format!("{lora}dropout=0.3"));
    let (_, without) = learns_and_resumes("", lora);
    assert!(with < before && without < before);
    assert!(with != without, "nothing was left out");
}

#[test]
fn packed_matrices_train_and_are_unpacked() {
    let (before, after) = learns_and_resumes(
        "",
        "[optimizer]\nlearning_rate=0.05\n[lora]\nrank=4\nalpha=8\nquantization='nf4'",
    );
    assert!(after < before, "{before} {after}");
}
