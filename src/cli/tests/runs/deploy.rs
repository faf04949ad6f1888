//! The manifests and scripts of `deploy/`, as far as they can be checked without a cluster.

use std::path::Path;
use std::process::{Command, Output};

use pybench_interpreter::environment::Environment;
use pybench_run::program;
use pybench_testing::{ROOT, skip};

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[test]
fn manifests_and_scripts_refer_to_what_exists_and_agree() {
    let environment = match Environment::find() {
        Ok(environment) => environment,
        Err(error) => return skip::missing_tool(error),
    };
    let mut check = Command::new(environment.root.join("bin/python"));
    succeed(check.arg(Path::new(ROOT).join(".ci/manifests")));
}

#[test]
fn kustomize_builds_the_manifests_with_and_without_scaling() {
    let Some(kubectl) = program::find("kubectl") else {
        return skip::unavailable("kubectl is not installed");
    };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("kubernetes");
    succeed(
        Command::new("cp")
            .arg("-r")
            .arg(Path::new(ROOT).join("deploy/kubernetes"))
            .arg(&copy),
    );
    let build = || {
        let output = succeed(Command::new(&kubectl).arg("kustomize").arg(&copy));
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = build();
    assert!(plain.contains("image: registry.example.org/pybench:latest"));
    assert!(plain.contains("replicas: 3") && !plain.contains("ScaledObject"));
    let settings = copy.join("kustomization.yaml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let scaled = text
        .replace("# components:", "components:")
        .replace("#   - scaling", "  - scaling");
    assert_ne!(text, scaled);
    std::fs::write(&settings, scaled).unwrap();
    let scaled = build();
    assert!(!scaled.contains("replicas:") && scaled.contains("kind: ScaledObject"));
}

/// Slurm's own look at the scripts: it says when a job would start, and starts none.
#[test]
fn slurm_accepts_the_scripts() {
    let Some(sbatch) = program::find("sbatch") else {
        return skip::unavailable("there is no Slurm on this machine");
    };
    for (script, arguments) in [
        ("coordinator.sbatch", ["recipe.toml", "cluster.toml"]),
        ("workers.sbatch", ["run", "cluster.toml"]),
    ] {
        let script = Path::new(ROOT).join("deploy/slurm").join(script);
        succeed(
            Command::new(&sbatch)
                // Whatever this machine has.
                .args(["--test-only", "--cpus-per-task=1", "--mem=1"])
                .arg(script)
                .args(arguments),
        );
    }
}
