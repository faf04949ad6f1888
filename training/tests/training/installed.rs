//! The trainer as a wheel installs it: beside PyTorch in a virtual environment, away from the checkout.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::run::Project;

/// A virtual environment with the trainer and this machine's libtorch.
struct Environment(tempfile::TempDir);

impl Environment {
    /// Lays the files as the wheel `$PYBENCH_TRAIN_WHEEL` has them, otherwise as training/wheel packs them.
    fn new() -> Self {
        let environment = Self(tempfile::tempdir().unwrap());
        for folder in [
            "bin",
            "lib/python3.11/site-packages",
            "share/pybench/training",
        ] {
            std::fs::create_dir_all(environment.path(folder)).unwrap();
        }
        let program = environment.path("bin/pybench-train");
        match std::env::var_os("PYBENCH_TRAIN_WHEEL") {
            Some(wheel) => environment.unpack(Path::new(&wheel)),
            None => {
                std::fs::copy(env!("CARGO_BIN_EXE_pybench-train"), &program).unwrap();
                for folder in ["recipes", "shapes"] {
                    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
                    symlink(
                        ours,
                        environment.path("share/pybench/training").join(folder),
                    )
                    .unwrap();
                }
            }
        }
        let torch = Path::new(env!("PYBENCH_LIBTORCH"))
            .join("..")
            .canonicalize()
            .unwrap();
        symlink(
            torch,
            environment.path("lib/python3.11/site-packages/torch"),
        )
        .unwrap();
        environment
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Lays out a wheel's `NAME.data/scripts` and `NAME.data/data`.
    fn unpack(&self, wheel: &Path) {
        let code = "import sys, zipfile, os\n\
            with zipfile.ZipFile(sys.argv[1]) as wheel:\n\
            \x20   for name in wheel.namelist():\n\
            \x20       kind, _, rest = name.partition('.data/')[2].partition('/')\n\
            \x20       place = {'scripts': 'bin', 'data': ''}.get(kind)\n\
            \x20       if place is None: continue\n\
            \x20       path = os.path.join(sys.argv[2], place, rest)\n\
            \x20       os.makedirs(os.path.dirname(path), exist_ok=True)\n\
            \x20       with open(path, 'wb') as file: file.write(wheel.read(name))\n\
            \x20       os.chmod(path, 0o755)\n";
        let mut python = Command::new("python3");
        let status = python
            .args(["-c", code])
            .arg(wheel)
            .arg(self.0.path())
            .status();
        assert!(status.unwrap().success(), "{}", wheel.display());
    }

    /// Runs a program of the environment with nothing of this process's surroundings.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.0.path())
            .current_dir(self.0.path());
        command
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &output.stderr].concat()).into_owned()
}

#[test]
fn an_installed_trainer_uses_the_pytorch_beside_it_and_its_own_recipes() {
    let environment = Environment::new();
    let program = environment.path("bin/pybench-train");
    let mut loader = environment.command(Path::new("/usr/bin/ldd"));
    let loaded = text(&loader.arg(&program).output().unwrap());
    let beside = environment.path("lib/python3.11/site-packages/torch/lib");
    let libraries = loaded
        .lines()
        .filter(|line| line.contains("libtorch_cpu.so =>") || line.contains("libc10.so =>"));
    let libraries: Vec<_> = libraries.collect();
    assert_eq!(libraries.len(), 2, "{loaded}");
    for line in libraries {
        let path = line
            .split(" => ")
            .nth(1)
            .unwrap()
            .split(" (")
            .next()
            .unwrap();
        let folder = Path::new(path).parent().unwrap().canonicalize().unwrap();
        assert!(
            line.contains("site-packages") && folder == beside.canonicalize().unwrap(),
            "{loaded}"
        );
    }

    let project = Project::new("batch_size=4\nmax_steps=2\n");
    let mut train = environment.command(&program);
    let output = train
        .arg("run")
        .arg(project.path("recipe.toml"))
        .args(["--out", "out"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(environment.path("out/model/model.safetensors").is_file());

    let mut plan = environment.command(&program);
    let plan = plan
        .args([
            "run",
            "pyllama3",
            "--dry-run",
            "--device",
            "cuda",
            "--gpus",
            "8",
        ])
        .output()
        .unwrap();
    let plan = text(&plan);
    assert!(!plan.contains("there is no recipe"), "{plan}");
    let missing = environment
        .command(&program)
        .args(["run", "none"])
        .output()
        .unwrap();
    let share = environment.path("share/pybench/training/recipes/none.toml");
    assert!(
        text(&missing).contains(&share.display().to_string()),
        "{}",
        text(&missing)
    );
}
