//! `pybench run move`: a run that is killed, moved to a cluster, killed, and moved back gives the bytes of a local run, also
//! if the moves are killed; no call is paid twice but those in flight at a kill.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_run::{ExitCode, Journal, Spent};
use rustix::process::Signal;

use crate::kill::dataset;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::support::pybench;
use crate::workers::{coordinator, drain, local_run, profile, recipe, requests, signal, worker};

fn run_move(fixture: &RunFixture, profile: Option<&Path>) -> Command {
    let mut command = pybench("run");
    command.args(["move", "t", "--runs-dir", "data/runs"]);
    match profile {
        Some(profile) => command.arg("--profile").arg(profile),
        None => command.arg("--local"),
    };
    command
        .current_dir(fixture.path("."))
        .env_remove("PYBENCH_ROOT");
    command
}

/// Moves the run; kills the command again and again, each time a little later, until it is faster. Returns the number of
/// moves that were killed.
fn move_under_kills(fixture: &RunFixture, profile: Option<&Path>) -> i32 {
    let mut killed = 0;
    loop {
        let mut moving = run_move(fixture, profile).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(10).mul_f64(1.3_f64.powi(killed)));
        let _ = moving.kill();
        if moving.wait().unwrap().success() {
            return killed;
        }
        killed += 1;
        assert!(killed < 40, "the move never ends");
    }
}

/// Waits until the endpoint was asked `count` times, then kills the process that works on the run.
fn kill_after(process: &mut Child, server: &Endpoint, count: u64) {
    let since = Instant::now();
    while requests(server) < count {
        assert!(since.elapsed() < Duration::from_secs(120), "nothing begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        process.try_wait().unwrap().is_none(),
        "the run was over before the kill"
    );
    signal(process, Signal::KILL);
    process.wait().unwrap();
}

fn spent(fixture: &RunFixture) -> Spent {
    Journal::read_run(&fixture.folder())
        .unwrap()
        .spent()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_moves_to_a_cluster_and_back_and_gives_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(400)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let (expected, asked) = local_run(&server, &tasks, &text).await;
    assert!(asked >= 12, "{asked} calls are too few for three places");

    let moving = RunFixture::bare(&text);
    let local = || {
        use std::os::unix::process::CommandExt;
        let mut command = moving.program("synthesize", &[]);
        command.process_group(0);
        command
    };
    let mut running = local().spawn().unwrap();
    kill_after(&mut running, &server, 4);

    let kills = move_under_kills(&moving, Some(&profile));
    assert!(moving.folder().join("journal.toml").is_file());
    let before = spent(&moving);
    let (mut running, mut helping) = (
        coordinator(&moving, &profile).spawn().unwrap(),
        worker(&moving, &profile).spawn().unwrap(),
    );
    let asked_before = requests(&server);
    kill_after(&mut running, &server, asked_before + 4);
    // A worker that is at work keeps the run where it is.
    let refused = run_move(&moving, None).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(
        refused.status.code(),
        Some(ExitCode::Conflict as i32),
        "{errors}"
    );
    assert!(
        errors.contains("workers that have joined the run: 1"),
        "{errors}"
    );
    drain(&mut helping);
    assert!(
        spent(&moving).calls > before.calls,
        "nothing was done there"
    );

    let kills = kills + move_under_kills(&moving, None);
    assert!(!moving.folder().join("journal.toml").exists());
    assert!(kills > 4, "{kills} moves were killed");
    let output = local().output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(dataset(&moving) == expected, "another dataset");
    assert_eq!(server.calls().len(), asked, "the same conversations");
    let spent = spent(&moving);
    assert!(
        requests(&server) <= spent.calls,
        "{} requests, {spent:?}",
        requests(&server)
    );
    // The local process and the coordinator work on one unit each, the worker on two; it was drained.
    assert!(spent.uncertain <= 2, "{spent:?}");
    assert_eq!(spent.calls - spent.uncertain, asked as u64, "{spent:?}");
    eprintln!("{kills} moves were killed, {spent:?}");
}

#[test]
fn a_move_needs_one_destination_and_a_run() {
    let fixture = RunFixture::bare(&recipe("{ kind = 'expert' }", ""));
    let mut command = pybench("run");
    command.args(["move", "t", "--runs-dir", "data/runs"]);
    let output = command.current_dir(fixture.path(".")).output().unwrap();
    assert_eq!(output.status.code(), Some(ExitCode::Usage as i32));
    let output = run_move(&fixture, None).output().unwrap();
    assert_eq!(output.status.code(), Some(ExitCode::BadInput as i32));
    drop(fixture.context());
    let output = run_move(&fixture, None).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("is there already"), "{said}");
}
