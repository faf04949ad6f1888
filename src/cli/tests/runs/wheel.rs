//! The wheel, as a user installs it: in an empty environment outside the checkout, without Rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pybench_run::default_cache_dir;
use pybench_testing::{ROOT, skip};

use crate::support::PYBENCH;
use crate::support::fixture::interpreter_is_here;

/// The quickstart on the sample files, with a few tasks.
const SMALL: [&str; 7] = [
    "synthesize",
    "--set",
    "query.tasks=4",
    "--set",
    "crawl.sources=[]",
    "--set",
    "grade.at_least=1",
];

/// A folder with the virtual environment `venv`, the home `home` and the project `project`.
struct Machine(tempfile::TempDir);

impl Machine {
    /// Installs the wheel; `None`, with a printed reason, where the package index cannot be reached.
    fn with(wheel: &Path) -> Option<Self> {
        let machine = Self(tempfile::tempdir().unwrap());
        for folder in ["home", "project"] {
            std::fs::create_dir(machine.path(folder)).unwrap();
        }
        let (venv, wheel) = (machine.path("venv"), wheel.to_str().unwrap());
        let venv = venv.to_str().unwrap();
        uv(&["venv", "--no-project", "--python", "python3", venv])?;
        let python = format!("{venv}/bin/python");
        uv(&[
            "pip",
            "install",
            "--link-mode",
            "copy",
            "--python",
            &python,
            wheel,
        ])?;
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `pybench` in the project. It sees the environment and nothing of this process's surroundings but the
    /// machine's cache, which has the Python environment of sessions.
    fn pybench(&self, args: &[&str]) -> Output {
        let bin = self.path("venv/bin");
        let mut command = Command::new(bin.join("pybench"));
        command
            .args(args)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("HOME", self.path("home"))
            .env("PYBENCH_CACHE", default_cache_dir());
        if let Some(environment) = std::env::var_os("PYBENCH_ENV") {
            command.env("PYBENCH_ENV", environment);
        }
        command.output().unwrap()
    }

    /// What it prints, if it succeeds.
    fn prints(&self, args: &[&str]) -> String {
        let output = self.pybench(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Runs the pinned uv with the machine's cache; `None`, and the test is skipped, if it fails.
fn uv(args: &[&str]) -> Option<()> {
    let mut uv = Command::new(pybench_net::pypi::find_uv(Path::new(ROOT)));
    let cache = default_cache_dir().join("uv");
    uv.args(args).env("UV_CACHE_DIR", cache);
    pybench_testing::python::made(&mut uv).map(drop)
}

/// Puts a wheel into the folder: `$PYBENCH_WHEEL`, which a release tests, or the program that these tests run.
fn wheel(folder: &Path) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("PYBENCH_WHEEL") {
        let given = Path::new(ROOT).join(given);
        let wheel = folder.join(given.file_name().unwrap());
        std::fs::copy(given, &wheel).unwrap();
        return Some(wheel);
    }
    let tested = Path::new(PYBENCH);
    let compiled = tested.ancestors().nth(2).unwrap();
    let target = tempfile::tempdir().unwrap();
    let profile = if cfg!(debug_assertions) {
        "dev"
    } else {
        "release"
    };
    let mut pack = Command::new(Path::new(ROOT).join("src/cli/wheel"));
    pack.args([
        "--profile",
        profile,
        "--compression-method",
        "stored",
        "--out",
    ])
    .arg(folder)
    // What is compiled is used again, but the program is linked elsewhere: maturin moves it away while it packs it,
    // and other tests start the one beside them meanwhile.
    .env("CARGO_BUILD_BUILD_DIR", compiled)
    .env("CARGO_TARGET_DIR", target.path());
    // Set for a test. The build script of `ring` depends on them, so that with them half of all crates were compiled again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            pack.env_remove(&*name);
        }
    }
    pybench_testing::python::made(&mut pack)?;
    let packed = target.path().join(tested.strip_prefix(compiled).unwrap());
    let size = |program: &Path| std::fs::metadata(program).unwrap().len();
    assert_eq!(
        size(&packed),
        size(tested),
        "the wheel has another program than the tests: see .ci/features"
    );
    let files = folder.read_dir().unwrap().flatten();
    files.map(|file| file.path()).next()
}

#[test]
fn an_installed_wheel_makes_the_quickstart_in_an_empty_folder() {
    if !interpreter_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(machine) = wheel(folder.path()).and_then(|wheel| Machine::with(&wheel)) else {
        return;
    };
    let text = machine.prints(&SMALL);
    assert!(
        text.contains("\ndataset: ./data/runs/quickstart/dataset\n"),
        "{text}"
    );
    assert!(text.contains("\npybench show quickstart 1 "), "{text}");
    assert!(text.ends_with("--set budget.usd=5\n"), "{text}");
    assert!(
        machine
            .path("project/data/runs/quickstart/dataset/README.md")
            .is_file()
    );
    assert!(
        machine
            .prints(&["show", "quickstart", "1"])
            .contains("── assistant")
    );
    // The Python environment is there: set-up finds it, and would ask the uv beside the program.
    assert!(machine.path("venv/bin/uv").is_file());
    assert!(machine.prints(&["setup"]).starts_with('/'));
    let written = machine.path("project").read_dir().unwrap().count();
    assert_eq!(written, 1, "runs and caches lie below data/");
}

/// The image that `src/cli/Containerfile` starts from.
const BASE: &str = "debian:12-slim";

/// Arguments of `podman run` before the image: limits that every machine's own allow, the machine's cache, and the
/// checkout, from which a debug build reads recipes and templates.
fn run_arguments() -> Vec<String> {
    let mut arguments = ["run", "--rm", "--privileged", "--network=host"]
        .map(str::to_owned)
        .to_vec();
    arguments
        .extend(["nofile=1024:1024", "nproc=4096:4096"].map(|limit| format!("--ulimit={limit}")));
    arguments.push(format!(
        "--volume={}:/var/cache/pybench",
        default_cache_dir().display()
    ));
    if std::env::var_os("PYBENCH_WHEEL").is_none() {
        let checkout = Path::new(ROOT).canonicalize().unwrap();
        let checkout = checkout.display();
        arguments.push(format!("--volume={checkout}:{checkout}:ro"));
    }
    arguments
}

/// `None` where podman is not installed.
fn podman<Text: AsRef<str>>(args: &[Text]) -> Option<Output> {
    let args = args.iter().map(AsRef::as_ref);
    Command::new("podman").args(args).output().ok()
}

/// Runs a command in a new container.
fn in_container(image: &str, command: &[&str]) -> Option<Output> {
    let mut args = run_arguments();
    args.extend([image].iter().chain(command).map(|&text| text.to_owned()));
    podman(&args)
}

/// Why containers of [`BASE`] cannot run here, if they cannot.
fn no_containers() -> Option<String> {
    let Some(found) = podman(&["image", "exists", BASE]) else {
        return Some("podman is not installed".to_owned());
    };
    if !found.status.success() {
        return Some(format!(
            "there is no image {BASE}; `podman pull {BASE}` gets it"
        ));
    }
    let run = in_container(BASE, &["true"])?;
    let said = String::from_utf8_lossy(&run.stderr);
    (!run.status.success()).then(|| format!("podman cannot start a container: {}", said.trim()))
}

#[test]
fn the_container_image_makes_the_quickstart() {
    if let Some(reason) = no_containers() {
        return skip::unavailable(reason);
    }
    let folder = tempfile::tempdir().unwrap();
    if wheel(folder.path()).is_none() {
        return;
    }
    let file = format!("--file={ROOT}/src/cli/Containerfile");
    let (tag, context) = (
        "localhost/pybench-wheel-test",
        folder.path().to_str().unwrap(),
    );
    let built = podman(&[
        "build",
        "--quiet",
        "--layers=false",
        "--network=host",
        "--tag",
        tag,
        &file,
        context,
    ])
    .unwrap();
    assert!(built.status.success(), "{built:?}");
    let run = in_container(tag, &SMALL).unwrap();
    podman(&["rmi", "--force", tag]);
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{run:?}");
    assert!(
        text.contains("\ndataset: ./data/runs/quickstart/dataset\n"),
        "{text}"
    );
}

#[test]
fn a_missing_environment_that_cannot_be_made_is_an_error_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::support::pybench("setup");
    command
        .current_dir(folder.path())
        .env_remove("PYBENCH_ENV")
        .env("PYBENCH_CACHE", folder.path().join("cache"))
        .env("UV", "/bin/false");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let environment = pybench_run::ExitCode::Environment as i32;
    assert_eq!(output.status.code(), Some(environment), "{errors}");
    assert!(
        errors.contains("the Python environment could not be "),
        "{errors}"
    );
}
