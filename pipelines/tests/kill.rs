//! `kill -9` of the whole process group at random moments: the artefact is the one of an undisturbed
//! run, and no call is paid twice but those in flight at a kill.

mod support;

use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process_group};
use support::endpoint::Endpoint;
use support::place::{FREE, Place, expert_endpoint, interpreter_is_here, openai, recipe};

const KILLS: u32 = 20;
const TASKS: usize = 8;

fn start(place: &Place) -> Child {
    place.rollout(&[]).process_group(0).spawn().unwrap()
}

/// Ends after `moment`, or earlier by itself.
fn kill_after(mut child: Child, moment: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + moment;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    None
}

/// Runs to the end, killed at most `kills` times before; returns the kills delivered.
fn run_killed(place: &Place, kills: u32, longest: Duration, rng: &mut ChaCha8Rng) -> u32 {
    for delivered in 0..kills {
        let moment = longest.mul_f64(rng.random_range(0.0..1.0));
        if let Some(status) = kill_after(start(place), moment) {
            assert!(status.success(), "{status}");
            return delivered;
        }
    }
    let status = start(place).wait().unwrap();
    assert!(status.success(), "{status}");
    kills
}

/// Requests received more than once, over and above the first.
fn repeated(server: &Endpoint) -> u64 {
    let calls = server.calls();
    calls.values().map(|count| u64::from(*count) - 1).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_change_nothing_and_cost_nothing() {
    if !interpreter_is_here() {
        return;
    }
    let new_place = async || {
        let tasks = Arc::new(OnceLock::new());
        let server = expert_endpoint(tasks.clone(), Duration::from_millis(60)).await;
        let teacher = openai(&server.base_url(), FREE);
        let place = Place::new(&recipe(TASKS, &teacher, "[rollout]\nconcurrency = 2\n")).await;
        tasks.set(place.tasks.clone()).unwrap();
        (place, server)
    };
    let (undisturbed, server) = new_place().await;
    let begun = Instant::now();
    assert!(start(&undisturbed).wait().unwrap().success());
    let whole = begun.elapsed();
    let expected = undisturbed.artefact();
    assert_eq!(expected.lines().count(), TASKS);
    assert_eq!(repeated(&server), 0);
    let asked = server.calls().len();

    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed run took {whole:?}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut kills, mut in_flight) = (0, 0);
    while kills < KILLS {
        let (place, server) = new_place().await;
        kills += run_killed(&place, KILLS - kills, whole, &mut rng);
        assert_eq!(place.artefact(), expected, "after {kills} kills");
        assert_eq!(server.calls().len(), asked, "the same conversations");
        let uncertain = place.spent().uncertain;
        assert!(
            repeated(&server) <= uncertain,
            "{} paid twice, {uncertain} in flight",
            repeated(&server)
        );
        in_flight += uncertain;
    }
    eprintln!("{kills} kills, {in_flight} calls in flight at them");
}
