//! `pybench worker`: several processes on one run give the bytes of a local run, pay for no call twice but those in flight at
//! a kill, and keep the budget.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_run::{BucketStore, ExitCode, Journal, ObjectServer, Profile, Store, WorkerSettings};
use pybench_testing::postgres::{self, SeparateServer};
use pybench_types::task::SourceFile;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::in_bucket;
use crate::kill::{dataset, dataset_of};
use crate::shared_run::SharedRun;
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::support::pybench;

const TASKS: usize = 12;

/// Seconds of a lease in these tests.
pub(crate) const LEASE: u32 = 3;

/// A call is 110 tokens.
const PRICED: &str = ", price = { prompt = 1.0, completion = 1.0 }";
const CALL: u64 = 110;

/// From three pictures to shards. The coordinator itself works on one unit at a time.
pub(crate) fn recipe(teacher: &str, rest: &str) -> String {
    format!(
        "name = 't'\nseed = 7\nteacher = {teacher}\n\n[[crawl.sources]]\nsource = 'local'\npath = 'files'\n\
         license = 'CC0-1.0'\n\n[query]\ntasks = {TASKS}\ntemplate_share = 0.5\n\
         keywords = ['rotate image', 'derivative', 'integral']\n\n[rollout]\nconcurrency = 1\n\n\
         [shard]\nheld_out_templates = 1\ntest_fraction = 0.3\n\n{rest}"
    )
}

/// A profile of the server of this program, with short leases.
pub(crate) fn profile(folder: &Path) -> Option<PathBuf> {
    Some(with_short_leases(&postgres::profile()?, folder))
}

/// A profile of a server, with short leases.
fn with_short_leases(server: &Path, folder: &Path) -> PathBuf {
    let mut profile = Profile::load(server).unwrap();
    profile.workers = WorkerSettings {
        lease_seconds: LEASE,
        ..WorkerSettings::default()
    };
    let path = folder.join("cluster.toml");
    std::fs::write(&path, toml::to_string(&profile).unwrap()).unwrap();
    path
}

pub(crate) fn coordinator(fixture: &RunFixture, profile: &Path) -> Command {
    let mut command = fixture.program("synthesize", &[]);
    command.arg("--profile").arg(profile);
    command.process_group(0);
    command
}

/// Lets a command be a worker of the run.
pub(crate) fn worker_of(mut command: Command, fixture: &RunFixture, profile: &Path) -> Command {
    command
        .args(["--run", "t", "--runs-dir", "data/runs", "--slots", "2"])
        .arg("--profile")
        .arg(profile)
        .current_dir(fixture.path("."))
        .env_remove("PYBENCH_ROOT")
        .process_group(0);
    command
}

pub(crate) fn worker(fixture: &RunFixture, profile: &Path) -> Command {
    worker_of(pybench("worker"), fixture, profile)
}

/// Starts workers, which may be before the run begins.
pub(crate) fn start_workers(fixture: &RunFixture, profile: &Path, count: usize) -> Vec<Child> {
    (0..count)
        .map(|_| worker(fixture, profile).spawn().unwrap())
        .collect()
}

/// Checks that a run which ended well has the dataset of a local run, and that each of its calls was asked once.
pub(crate) fn assert_same(
    fixture: &RunFixture,
    server: &Endpoint,
    (expected, asked): &(BTreeMap<PathBuf, Vec<u8>>, usize),
) {
    assert!(dataset(fixture) == *expected, "another dataset");
    assert_eq!(
        (server.calls().len(), requests(server)),
        (*asked, *asked as u64),
        "a call is repeated"
    );
    let journal = Journal::read_run(&fixture.folder()).unwrap();
    let spent = journal.spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain), (*asked as u64, 0));
}

/// Whether `just soak cluster` runs the tests, which then take more time.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("SOAK_SECONDS").is_some()
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process_group(Pid::from_child(child), signal).unwrap();
}

/// Asks a worker to end. One that has to drop a turn leaves an uncertain call.
pub(crate) fn drain(worker: &mut Child) {
    signal(worker, Signal::TERM);
    let status = worker.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// A local run of the recipe, at an endpoint that answers at once: its dataset and the number of different requests.
pub(crate) async fn local_run(
    server: &Endpoint,
    tasks: &OnceLock<Vec<pybench_types::task::Task>>,
    text: &str,
) -> (BTreeMap<PathBuf, Vec<u8>>, usize) {
    let (local, delay) = (RunFixture::bare(text), server.delay());
    server.answer_after(Duration::ZERO);
    for stage in ["crawl", "query"] {
        let written = local.program(stage, &[]).output().unwrap();
        assert!(written.status.success(), "{written:?}");
    }
    tasks.set(local.lines("tasks.jsonl")).unwrap();
    let output = local.program("synthesize", &[]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let asked = server.calls().len();
    server.forget();
    server.answer_after(delay);
    (dataset(&local), asked)
}

pub(crate) fn requests(server: &Endpoint) -> u64 {
    server.calls().values().map(|count| u64::from(*count)).sum()
}

/// A number in the schema of the run.
fn count(fixture: &RunFixture, rows: &str) -> u64 {
    let count = sql(fixture, &format!("SELECT COUNT(*) FROM SCHEMA.{rows}"));
    count.parse().unwrap()
}

/// What a query answers, in which `SCHEMA` is that of the run.
fn sql(fixture: &RunFixture, query: &str) -> String {
    let schema = schema_of(&fixture.folder());
    postgres::sql(&query.replace("SCHEMA", &format!("\"{schema}\"")))
}

/// The schema of PostgreSQL that has the journal of a run folder.
pub(crate) fn schema_of(folder: &Path) -> String {
    let pointer = std::fs::read_to_string(folder.join("journal.toml")).unwrap();
    let pointer: toml::Table = toml::from_str(&pointer).unwrap();
    pointer["schema"].as_str().unwrap().to_owned()
}

/// Trajectories with more repeated calls than repeated attempts, whatever ended those (a kill, a lost lease, an outage). An attempt
/// asks for its next turn only after the step of the last one is recorded, and of the attempts that asked for a turn only one
/// records it: so each of the others explains one repeated call.
const TOO_MANY_CALLS: &str = "SELECT made.item, repeated, attempts FROM
         (SELECT split_part(id, '/', 1) AS item, COUNT(*) - COUNT(DISTINCT regexp_replace(id, '/[0-9]+$', '')) AS repeated
          FROM SCHEMA.call GROUP BY 1) AS made
     LEFT JOIN SCHEMA.unit AS unit ON unit.stage = 'rollout' AND unit.item = made.item
     WHERE attempts IS NULL OR repeated >= attempts";

/// Checks that no request was made without a call of its own in the journal of a run that has ended, that a turn was asked again
/// only after an attempt had ended without recording the reply, and returns the number of calls whose replies came after other
/// processes had made them again. `sql` answers queries in which `SCHEMA` is that of the run.
pub(crate) fn assert_each_request_is_journaled(
    sql: impl Fn(&str) -> String,
    server: &Endpoint,
) -> u64 {
    // Calls of a turn differ in the number at the end of their ids.
    let turns = "SELECT COUNT(*) AS calls, COUNT(*) FILTER (WHERE state = 'settled') AS settled \
                 FROM SCHEMA.call GROUP BY regexp_replace(id, '/[0-9]+$', '')";
    let numbers = |column: &str| -> Vec<u64> {
        let list = format!("SELECT string_agg({column}::text, ',') FROM ({turns}) AS turn");
        let list = sql(&list);
        let mut numbers: Vec<u64> = list.split(',').map(|n| n.parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    };
    let (calls, settled) = (numbers("calls"), numbers("settled"));
    let mut requests: Vec<u64> = server.calls().into_values().map(u64::from).collect();
    requests.sort_unstable();
    // Each turn asks something else, so that sorted numbers can be compared.
    assert_eq!(calls.len(), requests.len());
    let mut pairs = calls.iter().zip(&requests);
    assert!(
        pairs.all(|(calls, asked)| asked <= calls),
        "{requests:?} requests, {calls:?} calls"
    );
    assert!(settled.iter().all(|count| *count >= 1), "{settled:?}");
    let open = "SELECT COUNT(*) FROM SCHEMA.call WHERE state NOT IN ('settled', 'uncertain')";
    assert_eq!(sql(open), "0");
    assert_eq!(sql(TOO_MANY_CALLS), "", "trajectory|repeated|attempts");
    settled.iter().sum::<u64>() - settled.len() as u64
}

#[test]
fn turns_that_one_attempt_pays_twice_are_found() {
    if postgres::profile().is_none() {
        return;
    }
    let sql = |query: &str| postgres::sql(&query.replace("SCHEMA", "calls_paid_twice"));
    sql("CREATE schema SCHEMA; CREATE TABLE SCHEMA.call (id TEXT);
         CREATE TABLE SCHEMA.unit (stage TEXT, item TEXT, attempts BIGINT);
         INSERT INTO SCHEMA.unit VALUES ('rollout', 'a', 2), ('grade', 'a', 1), ('rollout', 'b', 2);
         INSERT INTO SCHEMA.call VALUES ('a/0/0'), ('a/1/0'), ('a/1/1'), ('b/0/0'), ('b/0/1'), ('b/1/0'), ('b/1/1')");
    assert_eq!(sql(TOO_MANY_CALLS), "b|2|2");
}

/// Checks that a run whose processes have ended left no worker, no offer, no call in flight and no lease.
pub(crate) fn assert_nothing_is_left(fixture: &RunFixture) {
    for rows in [
        "member",
        "offer",
        "call WHERE state = 'in_flight'",
        "unit WHERE lease_until > 0",
    ] {
        assert_eq!(count(fixture, rows), 0, "{rows} is left");
    }
}

/// Number of workers that have units.
fn busy_workers(fixture: &RunFixture) -> usize {
    if !fixture.folder().join("tasks.jsonl").exists() {
        return 0;
    }
    let journal = Journal::read_run(&fixture.folder()).unwrap();
    let members = pybench_run::shared::Member::all(&journal).unwrap();
    members.iter().filter(|member| member.units > 0).count()
}

/// Three workers, of which one is drained, and a stranger that takes nothing. One run, because each takes long.
#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_give_the_same_bytes() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let mut run = SharedRun::begin(settings.path(), &profile, Duration::from_millis(400)).await;
    let mut is_drained = false;
    run.follow(|run| {
        if !is_drained && requests(&run.server) >= 4 && busy_workers(&run.fixture) > 0 {
            drain(&mut run.workers.remove(0));
            run.server.answer_after(Duration::ZERO);
            is_drained = true;
        }
    });
    assert!(is_drained, "the run was over before a worker was busy");
    run.end();
}

/// It is told in the first turn of a trajectory, which has a step then and goes on in the next command. Two runs, which take
/// long.
#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_drains_and_continues() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_secs(2)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let local = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let mut coordinating = coordinator(&shared, &profile).spawn().unwrap();
    while server.calls().is_empty() {
        assert!(coordinating.try_wait().unwrap().is_none(), "nothing begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&coordinating, Signal::TERM);
    let status = coordinating.wait().unwrap();
    assert_eq!(status.code(), Some(ExitCode::Interrupted as i32));
    assert!(count(&shared, "event") > 0, "the trajectory has ended");
    assert_nothing_is_left(&shared);
    server.answer_after(Duration::ZERO);
    let status = coordinator(&shared, &profile).status().unwrap();
    assert!(status.success(), "{status}");
    assert_same(&shared, &server, &local);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_stopped_workers_change_nothing() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(700)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let (expected, asked) = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let mut coordinating = coordinator(&shared, &profile).spawn().unwrap();
    let mut workers = start_workers(&shared, &profile, 3);
    let working = Instant::now();
    while server.calls().is_empty() {
        assert!(
            working.elapsed() < Duration::from_secs(120),
            "nothing begins"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(1_000));
    // One is killed, one is silent for longer than its lease, and the coordinator is replaced meanwhile.
    signal(&workers[0], Signal::KILL);
    workers[0].wait().unwrap();
    signal(&workers[1], Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    signal(&coordinating, Signal::KILL);
    let early = coordinating.wait().unwrap();
    assert!(!early.success(), "the run was over before the kill");
    workers[0] = worker(&shared, &profile).spawn().unwrap();
    let mut coordinating = coordinator(&shared, &profile).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(u64::from(LEASE) + 2));
    signal(&workers[1], Signal::CONT);
    let status = coordinating.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(dataset(&shared) == expected, "another dataset");
    assert_eq!(server.calls().len(), asked, "the same conversations");
    for worker in &mut workers {
        drain(worker);
    }
    // Calls of the dead become uncertain when the journal is opened again, and nothing is asked.
    let before = requests(&server);
    let again = coordinator(&shared, &profile).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(requests(&server), before);
    let spent = Journal::read_run(&shared.folder())
        .unwrap()
        .spent()
        .unwrap();
    // All calls but one of a turn were in flight at a kill, or in the worker that was silent: it has two units at a time.
    let late = assert_each_request_is_journaled(|query| sql(&shared, query), &server);
    assert!(late <= 2, "{late} calls are paid twice, {spent:?}");
    assert_eq!(spent.calls - spent.uncertain, asked as u64 + late);
    assert_eq!(count(&shared, "unit WHERE state <> 'done'"), 0);
    eprintln!(
        "{} requests for {asked} calls, {spent:?}",
        requests(&server)
    );
}

/// What a run has spent and reserved, in millionths of a dollar; 0 before it begins.
fn spent_so_far(fixture: &RunFixture) -> u64 {
    match fixture.folder().join("tasks.jsonl").exists() {
        true => {
            let journal = Journal::read_run(&fixture.folder()).unwrap();
            journal.spent().unwrap().micro_usd
        }
        false => 0,
    }
}

/// The amount that a call requested and did not get, from the last message about the budget.
fn wanted(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stderr);
    let before = text
        .rsplit_once(" more requested")
        .unwrap_or_else(|| panic!("{text}"))
        .0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Eight workers at a slow endpoint, which is slower in the soak.
#[tokio::test(flavor = "multi_thread")]
async fn workers_keep_the_budget() {
    let delay = match is_soak() {
        true => Duration::from_secs(2),
        false => Duration::from_millis(300),
    };
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()).filter(|_| interpreter_is_here()) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), delay).await;
    let text = |micro_usd: u64| {
        let budget = format!("[budget]\nusd = {}\n", micro_usd as f64 / 1e6);
        recipe(&openai(&server.base_url(), PRICED), &budget)
    };
    let (_, asked) = local_run(&server, &tasks, &text(1_000_000)).await;
    // What the first call reserves.
    let tiny = RunFixture::bare(&text(1))
        .program("synthesize", &[])
        .output();
    let reserved = wanted(&tiny.unwrap());
    assert_eq!(requests(&server), 0);

    // Half of the calls are affordable.
    let cap = reserved + asked as u64 * CALL / 2;
    let shared = RunFixture::bare(&text(cap));
    let mut workers = start_workers(&shared, &profile, 8);
    let mut command = coordinator(&shared, &profile);
    let coordinating = command.stderr(Stdio::piped()).spawn().unwrap();
    let waiting = std::thread::spawn(move || coordinating.wait_with_output().unwrap());
    while !waiting.is_finished() {
        // Reservations of calls in flight count too.
        let spent = spent_so_far(&shared);
        assert!(spent <= cap, "{spent} spent, {cap} allowed");
        std::thread::sleep(Duration::from_millis(200));
    }
    let output = waiting.join().unwrap();
    assert_eq!(
        output.status.code(),
        Some(ExitCode::Budget as i32),
        "{output:?}"
    );
    for worker in &mut workers {
        drain(worker);
    }
    let spent = Journal::read_run(&shared.folder())
        .unwrap()
        .spent()
        .unwrap();
    assert!(spent.micro_usd <= cap, "{spent:?}, {cap} allowed");
    assert!(
        CALL * requests(&server) <= spent.micro_usd,
        "{} requests, {spent:?}",
        requests(&server)
    );
    // The call that was refused would have exceeded the budget also with all that was given back.
    let refused = wanted(&output);
    assert!(
        spent.micro_usd + refused > cap,
        "{spent:?}, {refused} refused, {cap} allowed"
    );
}

#[test]
fn a_worker_waits_for_its_run_and_ends_without_one() {
    let settings = tempfile::tempdir().unwrap();
    let Some(profile) = profile(settings.path()) else {
        return;
    };
    let fixture = RunFixture::bare(&recipe("{ kind = 'expert' }", ""));
    let mut command = worker(&fixture, &profile);
    let output = command.args(["--idle-seconds", "1"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no run begins in"), "{errors}");
    // A run whose journal is in SQLite.
    drop(fixture.context());
    let output = worker(&fixture, &profile).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(ExitCode::Conflict as i32),
        "{output:?}"
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("in SQLite, which workers cannot join"),
        "{errors}"
    );
}

/// A worker with a profile, and without the folder of the run: what it needs comes from PostgreSQL and the bucket.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_run_folder_gives_the_same_bytes() {
    // A worker without the folder finds the run by its name, which runs of other tests have too.
    let Some(own) = SeparateServer::start().filter(|_| interpreter_is_here()) else {
        return;
    };
    let settings = tempfile::tempdir().unwrap();
    let profile = with_short_leases(own.profile(), settings.path());
    let Some(store) = pybench_testing::s3::server() else {
        return;
    };
    // Other tests have runs of this name in the bucket.
    let store = ObjectServer {
        prefix: "far".to_owned(),
        ..store
    };
    let mut with_store = Profile::load(&profile).unwrap();
    with_store.store = Some(store.clone());
    std::fs::write(&profile, toml::to_string(&with_store).unwrap()).unwrap();
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(500)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let (expected, asked) = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let elsewhere = tempfile::tempdir().unwrap();
    let own_profile = elsewhere.path().join("cluster.toml");
    std::fs::copy(&profile, &own_profile).unwrap();
    let mut command = worker(&shared, &own_profile);
    let mut far = command.current_dir(elsewhere.path()).spawn().unwrap();
    let status = coordinator(&shared, &profile).status().unwrap();
    assert!(status.success(), "{status}");
    drain(&mut far);
    assert!(dataset(&shared) == expected, "another dataset");
    assert_eq!(
        (server.calls().len(), requests(&server)),
        (asked, asked as u64),
        "a call is repeated"
    );
    let folder = elsewhere.path().join("data/runs/t");
    assert!(folder.join("tasks.jsonl").is_file(), "it worked on no unit");
    assert!(!folder.join("recipe.toml").exists());
    assert!(
        std::fs::read_dir(folder.join("files")).unwrap().count() > 0,
        "it read no input"
    );
    is_read_from_its_bucket(&store, &expected);
    files_are_crawled_from_the_bucket(&store);
}

/// The environment of a command that reads the bucket.
pub(crate) fn bucket_variables(store: &ObjectServer) -> [(&'static str, String); 5] {
    let secret = std::fs::read_to_string(store.secret_key_file.as_ref().unwrap()).unwrap();
    [
        ("AWS_ENDPOINT_URL", store.endpoint.clone().unwrap()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", store.access_key.clone().unwrap()),
        ("AWS_SECRET_ACCESS_KEY", secret.trim().to_owned()),
    ]
}

/// Crawls files that a recipe names by their address in the bucket.
fn files_are_crawled_from_the_bucket(store: &ObjectServer) {
    let path = format!("path = 's3://{}/{}/inputs'", store.bucket, store.prefix);
    let text = recipe("{ kind = 'expert' }", "").replace("path = 'files'", &path);
    let fixture = RunFixture::bare(&text);
    let inputs = BucketStore::new(store, "inputs").unwrap();
    for file in std::fs::read_dir(fixture.path("files")).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        inputs.put(&name, &file.path()).unwrap();
    }
    let cache = tempfile::tempdir().unwrap();
    let mut crawl = fixture.program("crawl", &[]);
    crawl.envs(bucket_variables(store));
    let output = crawl.env("PYBENCH_CACHE", cache.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let files: Vec<SourceFile> = fixture.lines("files.jsonl");
    assert_eq!(files.len(), 3, "{files:?}");
}

/// Reads and verifies the run `t` with nothing but its address in the bucket.
fn is_read_from_its_bucket(store: &ObjectServer, expected: &BTreeMap<PathBuf, Vec<u8>>) {
    let nowhere = tempfile::tempdir().unwrap();
    let url = format!("s3://{}/{}/t", store.bucket, store.prefix);
    let runs = format!("s3://{}/{}", store.bucket, store.prefix);
    let read = |arguments: &[&str]| in_bucket::read(store, nowhere.path(), arguments).0;
    let by_address = read(&["status", &url]);
    assert!(by_address.contains("12"), "{by_address}");
    assert_eq!(read(&["status", "t", "--runs-dir", &runs]), by_address);
    assert!(!read(&["show", &url]).is_empty());
    let books = nowhere.path().join("books");
    read(&["show", &url, "--notebook", books.to_str().unwrap()]);
    assert!(in_bucket::inputs_of_notebooks(&books) > 0, "no input file");
    let folder = PathBuf::from(read(&["run", "fetch", &url]).trim());
    assert!(folder.ends_with("t"), "{}", folder.display());
    assert!(dataset_of(&folder) == *expected, "another dataset");
    let files = read(&["run", "fetch", &format!("{url}/copies")]);
    let files = PathBuf::from(files.trim());
    assert!(files.ends_with("copies") && std::fs::read_dir(&files).unwrap().count() > 0);
    let stats = read(&["stats", &url]);
    assert!(stats.starts_with("dataset "), "{stats}");
    let verified = read(&["verify", &url, "--sample", "0.3"]);
    assert!(verified.contains("digest of all rows: "), "{verified}");
    let packed = read(&["publish", &url]);
    assert!(packed.contains("Nothing was uploaded"), "{packed}");
}
