//! The manifests and scripts of `deploy/`, as far as they can be checked without a cluster.

use std::path::Path;
use std::process::{Command, Output};

use pybench_interpreter::environment::Environment;
use pybench_run::program;
use pybench_testing::{ROOT, python, skip};

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

/// What `kubectl kustomize` makes of a copy of the manifests: without and with scaling.
fn kustomized(kubectl: &Path) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("kubernetes");
    let from = Path::new(ROOT).join("deploy/kubernetes");
    succeed(Command::new("cp").arg("-r").arg(from).arg(&copy));
    let build = || {
        let output = succeed(Command::new(kubectl).arg("kustomize").arg(&copy));
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = build();
    let settings = copy.join("kustomization.yaml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let scaled = text
        .replace("# components:", "components:")
        .replace("#   - scaling", "  - scaling");
    assert_ne!(text, scaled);
    std::fs::write(&settings, scaled).unwrap();
    [plain, build()]
}

#[test]
fn kustomize_builds_the_manifests_with_and_without_scaling() {
    let Some(kubectl) = program::find("kubectl") else {
        return skip::unavailable("kubectl is not installed");
    };
    let [plain, scaled] = kustomized(&kubectl);
    assert!(plain.contains("image: registry.example.org/pybench:latest"));
    assert!(plain.contains("replicas: 3") && !plain.contains("ScaledObject"));
    assert!(!scaled.contains("replicas:") && scaled.contains("kind: ScaledObject"));
}

/// The manifests as they are applied; without `kubectl`, as they are written.
fn manifests() -> Vec<String> {
    if let Some(kubectl) = program::find("kubectl") {
        return kustomized(&kubectl).into();
    }
    let files = ["namespace.yaml", "coordinator.yaml", "workers.yaml"];
    let folder = Path::new(ROOT).join("deploy/kubernetes");
    files
        .map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
        .into()
}

#[test]
fn manifests_hold_to_the_schema_of_the_api() {
    let Some(python) = python::environment("kubernetes") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let validate = |manifests: &[String]| {
        let mut check = Command::new(&python);
        check.arg(Path::new(ROOT).join(".ci/kubernetes-schema"));
        for (n, text) in manifests.iter().enumerate() {
            let path = folder.path().join(format!("{n}.yaml"));
            std::fs::write(&path, text).unwrap();
            check.arg(path);
        }
        check.output().unwrap()
    };
    let manifests = manifests();
    let valid = validate(&manifests);
    assert!(valid.status.success(), "{valid:?}");

    let mistaken = [
        ("replicas: 3", "replicas: three", "spec.replicas: 'three'"),
        ("envFrom:", "envfrom:", "'envfrom' was unexpected"),
    ];
    for (field, mistake, reason) in mistaken {
        let wrong: Vec<String> = manifests
            .iter()
            .map(|text| text.replace(field, mistake))
            .collect();
        assert_ne!(wrong, manifests, "no manifest has {field}");
        let refused = validate(&wrong);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && errors.contains(reason),
            "{refused:?}"
        );
    }
}
