//! Several processes train as one does.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pybench_training::model::Weights;
use tch::{Device, Kind};

use crate::run::{Project, losses, newest};
use crate::support::distance;

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// Starts `world` processes of one run.
pub(crate) fn start(project: &Project, out: &str, world: usize) -> Vec<Child> {
    let port = free_port();
    (0..world)
        .map(|rank| {
            let mut command = project.command(out);
            command
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", world.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect()
}

pub(crate) fn finish(children: Vec<Child>) -> String {
    let mut all = String::new();
    for (rank, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "process {rank}: {text}");
        all += &text;
    }
    all
}

pub(crate) fn assert_same_weights(project: &Project, a: &str, b: &str, bound: f64) {
    let open = |out: &str| {
        let path = project.path(out).join("model/model.safetensors");
        Weights::open_file(&path).unwrap()
    };
    let (a_file, b_file) = (open(a), open(b));
    let mut compared = 0;
    for (name, shape) in a_file.shapes().unwrap() {
        let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let get = |file: &Weights| {
            file.tensor(&name, &shape, Kind::Float, Device::Cpu)
                .unwrap()
        };
        let off = distance(&get(&b_file), &get(&a_file));
        assert!(off <= bound, "{a} and {b}, {name}: {off:e}");
        compared += 1;
    }
    assert!(compared > 10);
    let after = |out: &str| {
        let results = losses(&project.path(out));
        results["after"]["unseen_files"].as_f64().unwrap()
    };
    assert!((after(a) - after(b)).abs() < 1e-4);
}

const RATE: &str = "[optimizer]\nlearning_rate=0.001\nweight_decay=0.1\n";

#[test]
fn eight_at_once_one_by_one_and_two_processes_reach_the_same_weights() {
    let project = Project::new(
        "batch_size=8\nmicro_batch_size=8\nmax_steps=6\n[optimizer]\nlearning_rate=0.001\nweight_decay=0.1",
    );
    assert!(project.run("at-once").0);
    let recipe = std::fs::read_to_string(project.path("recipe.toml")).unwrap();
    let single = recipe.replace("micro_batch_size=8", "micro_batch_size=1");
    std::fs::write(project.path("recipe.toml"), single).unwrap();
    assert!(project.run("one-by-one").0);
    finish(start(&project, "two", 2));
    assert_same_weights(&project, "at-once", "one-by-one", 1e-5);
    assert_same_weights(&project, "at-once", "two", 1e-5);
}

/// PyTorch's launcher: of `just parity`'s environment, on the path, or made of what training/setup installs.
fn torchrun() -> Option<PathBuf> {
    let cache = pybench_training::catalog::cache_folder().ok()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| folder.join("torchrun"));
    std::iter::once(cache.join("venv-parity/bin/torchrun"))
        .chain(folders)
        .find(|program| program.exists())
        .or_else(|| pybench_test_needs::python::with_torch("torchrun", "torchrun"))
}

#[test]
fn torchrun_starts_two_processes_and_ends_with_them() {
    let Some(torchrun) = torchrun() else { return };
    let project = Project::new(&format!("batch_size=2\nmax_steps=4\n{RATE}"));
    let (good, text) = project.run("one");
    assert!(good, "{text}");
    let ours = project.command("two");
    let mut command = Command::new(torchrun);
    command
        .args(["--no-python", "--nproc-per-node=2"])
        .arg(format!("--master-port={}", free_port()))
        .arg(ours.get_program())
        .args(ours.get_args());
    for (name, value) in ours.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let log = project.path("torchrun.log");
    let file = std::fs::File::create(&log).unwrap();
    command.stdout(Stdio::null()).stderr(file);
    let (mut child, started) = (command.spawn().unwrap(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        // Importing PyTorch takes torchrun most of a minute on a busy machine.
        if started.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{text}");
    assert_same_weights(&project, "one", "two", 1e-5);
}

#[test]
fn a_process_without_work_in_a_step_takes_part() {
    let project = Project::new(&format!("batch_size=3\nmax_steps=4\n{RATE}"));
    let (good, text) = project.run("one");
    assert!(good, "{text}");
    let output = project
        .command("two")
        .args(["--processes", "2"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_same_weights(&project, "one", "two", 1e-5);
}

#[test]
fn a_process_that_fails_ends_the_others() {
    let project = Project::new(
        "batch_size=2\nmax_steps=400\n[optimizer]\nlearning_rate=1e30\nmax_grad_norm=0",
    );
    let output = project
        .command("out")
        .args(["--processes", "2"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("diverged"), "{text}");
}

#[test]
fn low_rank_additions_and_packed_matrices_are_shared_out() {
    for rest in ["", "quantization='nf4'\n"] {
        let lora = format!("batch_size=2\nmax_steps=4\n{RATE}[lora]\nrank=4\nalpha=8\n{rest}");
        let project = Project::new(&lora);
        let (good, text) = project.run("one");
        assert!(good, "{text}");
        finish(start(&project, "two", 2));
        assert_same_weights(&project, "one", "two", 1e-5);
    }
}

#[test]
fn killed_processes_go_on_with_the_same_bits_and_one_can_go_on_for_two() {
    let project = Project::new(&format!(
        "batch_size=4\nmax_steps=30\n{RATE}[checkpoint]\nsave_steps=3\nsave_total_limit=2"
    ));
    finish(start(&project, "whole", 2));
    let killed = |out: &String| {
        let (mut children, folder) = (start(&project, out, 2), project.path(out));
        for _ in 0..30_000 {
            if newest(&folder).is_some() || children[0].try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        newest(&folder).is_some() && !folder.join("model").exists()
    };
    // On a busy machine this test may sleep until a run is over.
    let killed = (0..5).map(|n| format!("killed-{n}")).find(killed);
    let killed = killed.expect("every run was over before it could be killed");
    let copied = Command::new("cp")
        .arg("-r")
        .args([project.path(&killed), project.path("alone")])
        .status();
    assert!(copied.unwrap().success());
    let text = finish(start(&project, &killed, 2));
    assert!(text.contains("resuming after step"), "{text}");
    let model = |out: &str| std::fs::read(project.path(out).join("model/model.safetensors"));
    assert!(model("whole").unwrap() == model(&killed).unwrap());
    let (good, text) = project.run("alone");
    assert!(good && text.contains("resuming after step"), "{text}");
    assert_same_weights(&project, "whole", "alone", 1e-5);
}

#[test]
fn a_number_that_is_none_is_named() {
    let project = Project::new("max_steps=1");
    let output = project
        .command("out")
        .env("WORLD_SIZE", "2")
        .env("RANK", "2")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("RANK is \"2\""),
        "{text}"
    );
}
