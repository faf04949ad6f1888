//! Signals to the whole process group at random moments of `synthesize`, most of them `kill -9`: the shards are those of an
//! undisturbed run, byte by byte, and no call is paid twice but those in flight at a kill.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::endpoint::Answer;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{
    ExpertServer, FREE, RunFixture, expert_endpoint, find_task, interpreter_is_here, openai,
};
use crate::support::kill::signal_after;
use pybench_types::task::Task;
use pybench_types::trajectory::Verdict;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;

/// Signals in each test; `just soak` sends more (`SOAK_KILLS`). The moments are random.
const KILLS: u32 = 4;
/// Signals in the test of a goal.
const GOAL_KILLS: u32 = 3;
const TASKS: usize = 8;

/// What may end a run, in this order. Half of the signals cannot be noticed.
const SIGNALS: [Signal; 8] = [
    Signal::TERM,
    Signal::KILL,
    Signal::INT,
    Signal::KILL,
    Signal::HUP,
    Signal::KILL,
    Signal::QUIT,
    Signal::KILL,
];

/// From three pictures to shards.
fn recipe(teacher: &str, rollout: &str) -> String {
    format!(
        "name = 't'\nseed = 7\nteacher = {teacher}\n\n[[crawl.sources]]\nsource = 'local'\npath = 'files'\n\
         license = 'CC0-1.0'\n\n[query]\ntasks = {TASKS}\ntemplate_share = 0.5\n\
         keywords = ['rotate image', 'derivative', 'integral']\n\n[rollout]\n{rollout}\n\n\
         [shard]\nheld_out_templates = 1\ntest_fraction = 0.3\n"
    )
}

fn start(fixture: &RunFixture) -> Child {
    let mut synthesize = fixture.program("synthesize", &[]);
    synthesize.process_group(0).spawn().unwrap()
}

/// The same by a user whose new files nobody else can read, the user of a session included.
fn start_with_umask(fixture: &RunFixture) -> Child {
    let synthesize = fixture.program("synthesize", &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh"]);
    shell
        .arg(synthesize.get_program())
        .args(synthesize.get_args());
    for (name, value) in synthesize.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(folder) = synthesize.get_current_dir() {
        shell.current_dir(folder);
    }
    shell.spawn().unwrap()
}

/// Every file of the dataset: path → bytes.
pub(crate) fn dataset(fixture: &RunFixture) -> BTreeMap<PathBuf, Vec<u8>> {
    dataset_of(&fixture.folder())
}

/// As [`dataset`], of a run folder.
pub(crate) fn dataset_of(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = run.join(pybench_shard::DATASET);
    let mut files = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                files.insert(path.strip_prefix(&root).unwrap().to_owned(), bytes);
            }
        }
    }
    files
}

/// Runs to the end, killed at most `kills` times before; returns the kills delivered.
fn run_killed(
    fixture: &RunFixture,
    kills: u32,
    longest: Duration,
    signals: &mut impl Iterator<Item = Signal>,
    rng: &mut ChaCha8Rng,
) -> u32 {
    for delivered in 0..kills {
        let moment = longest.mul_f64(rng.random_range(0.0..1.0));
        let signal = signals.next().unwrap();
        if let Some(status) = signal_after(start(fixture), signal, moment) {
            assert!(status.success(), "{status}");
            return delivered;
        }
    }
    let status = start(fixture).wait().unwrap();
    assert!(status.success(), "{status}");
    kills
}

/// Requests received more than once, over and above the first.
fn repeated(server: &Endpoint) -> u64 {
    let calls = server.calls();
    calls.values().map(|count| u64::from(*count) - 1).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_change_nothing_and_cost_nothing() {
    let kills = std::env::var("SOAK_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let delay = Duration::from_millis(60);
    survives_kills("concurrency = 2", delay, kills, &SIGNALS).await;
}

/// As many trajectories in flight as the endpoint takes, most of them waiting for a reply.
#[tokio::test(flavor = "multi_thread")]
async fn kills_with_many_in_flight_cost_nothing() {
    // The signals that the other test does not send.
    let signals = &SIGNALS[KILLS as usize..];
    let delay = Duration::from_millis(500);
    survives_kills("concurrency = 0", delay, KILLS, signals).await;
}

async fn survives_kills(rollout: &str, delay: Duration, wanted: u32, signals: &[Signal]) {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    // One for all, because the recipe, and so the card, names it.
    let server = expert_endpoint(tasks.clone(), delay).await;
    let new_run = || RunFixture::bare(&recipe(&openai(&server.base_url(), FREE), rollout));
    let undisturbed = new_run();
    for stage in ["crawl", "query"] {
        let written = undisturbed.program(stage, &[]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    tasks.set(undisturbed.lines("tasks.jsonl")).unwrap();
    // What has been crawled is not read again.
    std::fs::write(undisturbed.path("files/picture0.png"), "changed").unwrap();
    std::fs::remove_file(undisturbed.path("files/picture1.png")).unwrap();
    let begun = Instant::now();
    assert!(start(&undisturbed).wait().unwrap().success());
    let whole = begun.elapsed();
    let expected = dataset(&undisturbed);
    let shards = |path: &PathBuf| path.extension().is_some_and(|end| end == "parquet");
    assert_eq!(expected.keys().filter(|path| shards(path)).count(), 2);
    assert_eq!(repeated(&server), 0);
    let asked = server.calls().len();

    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed run took {whole:?}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut signals = signals.iter().copied().cycle();
    let (mut kills, mut in_flight) = (0, 0);
    while kills < wanted {
        let fixture = new_run();
        server.forget();
        kills += run_killed(&fixture, wanted - kills, whole, &mut signals, &mut rng);
        for (path, bytes) in dataset(&fixture) {
            assert!(
                expected.get(&path) == Some(&bytes),
                "{path:?} differs after {kills} kills"
            );
        }
        assert_eq!(dataset(&fixture).len(), expected.len());
        assert_eq!(server.calls().len(), asked, "the same conversations");
        let uncertain = fixture.spent().uncertain;
        assert!(
            repeated(&server) <= uncertain,
            "{} paid twice, {uncertain} in flight",
            repeated(&server)
        );
        in_flight += uncertain;
    }
    eprintln!("{kills} kills, {in_flight} calls in flight at them");
}

/// A call is 110 tokens.
const PRICED: &str = ", price = { prompt = 1.0, completion = 1.0 }";
const CALL: u64 = 110;
const ROWS: usize = 7;

/// An endpoint at which the expert answers, but gives up on every other task.
async fn weak_endpoint(tasks: Arc<OnceLock<Vec<Task>>>, delay: Duration) -> Endpoint {
    let expert = Arc::new(ExpertServer::new());
    Endpoint::start(move |request| {
        let (tasks, expert) = (tasks.clone(), expert.clone());
        async move {
            tokio::time::sleep(delay).await;
            let tasks = tasks.get().unwrap();
            let messages: Vec<_> = serde_json::from_value(request["messages"].clone()).unwrap();
            let task = find_task(tasks, &messages);
            match tasks.iter().position(|other| other.id == task.id) {
                Some(at) if at % 2 == 1 => Answer::Content("Finished: it cannot be done.".into()),
                _ => expert.answer(tasks, &request),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_is_reached_exactly_over_kills_and_to_the_cent() {
    if !interpreter_is_here() {
        return;
    }
    let tasks = Arc::new(OnceLock::new());
    let delay = Duration::from_millis(40);
    let weak = weak_endpoint(tasks.clone(), delay).await;
    let strong = expert_endpoint(tasks.clone(), delay).await;
    let rollout = "concurrency = 2\nsamples = 2";
    let text = recipe(&openai(&weak.base_url(), PRICED), rollout);
    // Rows that the split drops would not count toward the goal.
    let text = text
        .replace("tasks = 8", "tasks = 12")
        .replace("held_out_templates = 1", "held_out_templates = 0");
    let text = format!(
        "{text}\n[goal]\naccept = {ROWS}\nenough = 1\n\n[budget]\nusd = 1.0\n\n[[escalation]]\nkind = 'openai'\n\
         model = 'strong'\nbase_url = '{}'\nprice = {{ prompt = 1.0, completion = 1.0 }}\n",
        strong.base_url()
    );
    let undisturbed = RunFixture::bare(&text);
    for stage in ["crawl", "query"] {
        let written = undisturbed.program(stage, &[]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    tasks.set(undisturbed.lines("tasks.jsonl")).unwrap();
    let begun = Instant::now();
    assert!(start(&undisturbed).wait().unwrap().success());
    let whole = begun.elapsed();
    let accepted = |fixture: &RunFixture| {
        let verdicts: Vec<Verdict> = fixture.lines("verdicts.jsonl");
        verdicts.iter().filter(|verdict| verdict.accepted).count()
    };
    assert_eq!(accepted(&undisturbed), ROWS);
    let calls = || u64::from(weak.call_count() + strong.call_count());
    assert!(strong.call_count() > 0, "the stronger one was needed");
    assert_eq!(undisturbed.spent().micro_usd, CALL * calls());
    let tries = undisturbed.units().len();
    assert!(
        tries < 12 * 4,
        "{tries} tries: it went on with the goal reached"
    );
    let expected = dataset(&undisturbed);
    // The same command again changes nothing and costs nothing.
    let (before, paid) = (calls(), undisturbed.spent().calls);
    assert!(start(&undisturbed).wait().unwrap().success());
    assert_eq!((calls(), dataset(&undisturbed) == expected), (before, true));
    let private = RunFixture::bare(&text);
    assert!(start_with_umask(&private).wait().unwrap().success());
    assert!(
        dataset(&private) == expected,
        "the umask changes the dataset"
    );

    let seed = rand::random::<u64>();
    eprintln!("seed of the moments: {seed}; an undisturbed run took {whole:?}, {tries} tries");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut signals = SIGNALS.into_iter().cycle();
    let mut kills = 0;
    while kills < GOAL_KILLS {
        let fixture = RunFixture::bare(&text);
        weak.forget();
        strong.forget();
        kills += run_killed(&fixture, GOAL_KILLS - kills, whole, &mut signals, &mut rng);
        assert_eq!(accepted(&fixture), ROWS);
        assert!(
            dataset(&fixture) == expected,
            "another dataset after {kills} kills"
        );
        let (spent, answered) = (
            fixture.spent(),
            fixture.spent().calls - fixture.spent().uncertain,
        );
        assert!(spent.micro_usd <= 1_000_000);
        assert!(calls() <= spent.calls, "{} calls, {spent:?}", calls());
        if spent.uncertain == 0 {
            assert_eq!(spent.micro_usd, CALL * answered);
        }
        assert_eq!(answered, paid, "every reply is paid for once");
    }
    eprintln!("{kills} kills, exactly {ROWS} rows");
}
