//! Training data that is the dataset of a run in a bucket. `pybench run fetch` itself is tested in src/cli/tests/runs/in_bucket.rs.

use std::process::Command;

use pybench_test_needs::program::write_program;

use crate::run::Project;

/// Replaces `pybench`, which copies what is in buckets.
const FETCH: &str =
    "#!/bin/sh\n[ \"$1 $2 $3\" = 'run fetch s3://bucket/runs/t/dataset' ] && echo COPY\n";

#[test]
fn the_dataset_of_a_run_in_a_bucket_is_training_data() {
    let project = Project::new("batch_size=4\nnum_epochs=2");
    let copy = project.path("t/dataset");
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::rename(project.path("train.jsonl"), copy.join("train.jsonl")).unwrap();
    let recipe = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    let local = project.path("train.jsonl").display().to_string();
    let recipe = recipe.replace(&local, "s3://bucket/runs/t/dataset");
    std::fs::write(project.path("recipe.toml"), recipe).unwrap();
    // The program looks for `pybench` beside itself.
    let program = project.path("pybench-train");
    let made = env!("CARGO_BIN_EXE_pybench-train");
    if std::fs::hard_link(made, &program).is_err() {
        // Another process does it, as in `write_program`.
        let copied = Command::new("cp").arg(made).arg(&program).status();
        assert!(copied.unwrap().success());
    }
    let script = FETCH.replace("COPY", copy.to_str().unwrap());
    write_program(&project.path("pybench"), &script);
    let output = Command::new(&program)
        .arg("run")
        .arg(project.path("recipe.toml"))
        .arg("--dry-run")
        .env("OMP_NUM_THREADS", "1")
        .env("PYBENCH_CACHE", project.path("cache"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("per epoch: 40 documents"), "{text}");
}
