//! A run with three workers while its servers fail, and while processes are killed: the bytes of a local run, no call paid
//! twice but those in flight at a kill, and nothing left behind.
//!
//! `just soak cluster SECONDS SEED` repeats the test of random faults with the shares of faults that a bad day has, and then makes
//! the quickstart under them. With the feature `temporal`, a Temporal server distributes the units of these tests, and is killed
//! too.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pybench_run::{BucketStore, Journal, ObjectServer, Profile, Spent, Store, WorkerSettings};
use pybench_testing::faults::{CuttingProxy, S3Faults, S3Proxy};
use pybench_testing::postgres::SeparateServer;
use pybench_testing::{ROOT, s3, sessions, temporal};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;

use crate::kill::dataset;
use crate::orphans::{Process, descendants, wait_for_end};
use crate::support::endpoint::Endpoint;
use crate::support::fixture::{FREE, RunFixture, expert_endpoint, interpreter_is_here, openai};
use crate::workers::{
    assert_each_request_is_journaled, assert_same, coordinator, drain, local_run, recipe, requests,
    schema_of, signal, start_workers, worker,
};

const WORKERS: usize = 3;

/// How often servers and processes fail in a run.
struct Pace {
    /// Faults at most.
    faults: usize,
    /// Milliseconds between two faults.
    pause: Range<u64>,
    /// Time after which a run that does not end is a failure.
    max_run: Duration,
}

/// The test of random faults.
const PACE: Pace = Pace {
    faults: 6,
    pause: 500..3_000,
    max_run: Duration::from_secs(600),
};

/// That test in the soak.
const SOAK_PACE: Pace = Pace { faults: 20, ..PACE };

/// The quickstart, which has twenty times as many tasks.
const QUICKSTART_PACE: Pace = Pace {
    faults: 60,
    pause: 500..8_000,
    max_run: Duration::from_secs(3_600),
};

/// A run's servers, those of journal and files behind proxies.
struct Servers {
    postgres: SeparateServer,
    /// `None` if the journal distributes the units.
    temporal: Option<temporal::SeparateServer>,
    cutting: CuttingProxy,
    store: ObjectServer,
    s3: S3Proxy,
    profile: PathBuf,
    lease: Duration,
}

impl Servers {
    /// `None`, and the test is skipped, if a server cannot be installed. Connections to PostgreSQL are cut after `mean` on
    /// average. `is_queued`: Temporal distributes the units.
    fn start(
        folder: &Path,
        (faults, mean): (S3Faults, Duration),
        lease_seconds: u32,
        is_queued: bool,
    ) -> Option<Self> {
        let (postgres, store) = (SeparateServer::start()?, s3::server()?);
        // The tests have runs of the same name.
        let prefix = folder.file_name().unwrap().to_str().unwrap();
        let store = ObjectServer {
            prefix: prefix.trim_start_matches('.').to_owned(),
            ..store
        };
        let temporal = match is_queued {
            true => Some(temporal::SeparateServer::start()?),
            false => None,
        };
        let mut profile = Profile::load(postgres.profile()).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, profile.postgres.port));
        let cutting = CuttingProxy::start(address, mean, faults.seed);
        let s3 = S3Proxy::start(store.endpoint.as_deref().unwrap(), faults);
        profile.postgres.port = cutting.port();
        profile.store = Some(ObjectServer {
            endpoint: Some(s3.endpoint()),
            // Less than the delay of slow answers.
            timeout_seconds: u32::try_from(faults.delay.as_secs()).unwrap().max(2) - 1,
            ..store.clone()
        });
        profile.temporal = temporal.as_ref().map(|server| server.address().clone());
        profile.workers = WorkerSettings {
            lease_seconds,
            ..WorkerSettings::default()
        };
        let path = folder.join("cluster.toml");
        std::fs::write(&path, toml::to_string(&profile).unwrap()).unwrap();
        Some(Self {
            postgres,
            temporal,
            cutting,
            store,
            s3,
            profile: path,
            lease: Duration::from_secs(lease_seconds.into()),
        })
    }

    /// What a query answers, in which `SCHEMA` is that of the run.
    fn sql(&self, fixture: &RunFixture, query: &str) -> String {
        let schema = format!("\"{}\"", schema_of(&fixture.folder()));
        self.postgres.sql(&query.replace("SCHEMA", &schema))
    }

    /// Why units have failed, or failed the last time.
    fn failures(&self, fixture: &RunFixture) -> String {
        self.sql(
            fixture,
            "SELECT stage, item, state, attempts, failure FROM SCHEMA.unit WHERE failure IS NOT NULL",
        )
    }

    /// Checks that the run left no lease, no worker, no call in flight, no upload and no activity.
    fn assert_nothing_is_left(&self, fixture: &RunFixture) {
        for rows in [
            "member",
            "offer",
            "call WHERE state = 'in_flight'",
            "unit WHERE lease_until > 0",
            // A task whose reference is wrong has failed in a local run too; any other unit that has failed changes the dataset.
            "unit WHERE state = 'pending'",
        ] {
            let count = self.sql(fixture, &format!("SELECT COUNT(*) FROM SCHEMA.{rows}"));
            assert_eq!(count, "0", "{rows} is left");
        }
        let store = BucketStore::new(&self.store, &schema_of(&fixture.folder())).unwrap();
        assert_eq!(store.end_uploads().unwrap(), 0, "an upload is left");
        #[cfg(feature = "temporal")]
        if let Some(temporal) = &self.temporal {
            let place = pybench_run::RunQueue {
                server: temporal.address().clone(),
                run: schema_of(&fixture.folder()),
                lease: Duration::from_secs(LEASE.into()),
            };
            let open = async {
                let queue = pybench_temporal::TemporalQueue::connect(&place).await?;
                queue.open().await
            };
            let runtime = tokio::runtime::Handle::current();
            let open = tokio::task::block_in_place(|| runtime.block_on(open));
            assert_eq!(open.unwrap(), 0, "an activity is left");
        }
    }

    fn describe(&self) -> String {
        format!(
            "{} cut connections; of {} requests to S3, {} failed and {} were late",
            self.cutting.cuts(),
            self.s3.requests(),
            self.s3.errors(),
            self.s3.slow()
        )
    }
}

fn spent(fixture: &RunFixture) -> Spent {
    let journal = Journal::read_run(&fixture.folder()).unwrap();
    journal.spent().unwrap()
}

/// Checks that a process that has ended left no session; its last ones end within a second.
fn assert_no_session_is_left(pid: u32) {
    let since = Instant::now();
    while !sessions::left(pid).is_empty() && since.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(
        sessions::left(pid),
        Vec::<String>::new(),
        "of process {pid}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_servers_change_nothing_and_cost_nothing() {
    if !interpreter_is_here() {
        return;
    }
    let settings = tempfile::tempdir().unwrap();
    let faults = S3Faults {
        errors: 0.2,
        slow: 0.03,
        delay: Duration::from_secs(3),
        seed: 7,
    };
    // Leases outlast the faults, so that no unit changes hands.
    let mean = Duration::from_millis(700);
    let Some(servers) = Servers::start(settings.path(), (faults, mean), 60, false) else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(150)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let local = local_run(&server, &tasks, &text).await;

    let shared = RunFixture::bare(&text);
    let mut workers = start_workers(&shared, &servers.profile, WORKERS);
    let mut coordinating = coordinator(&shared, &servers.profile).spawn().unwrap();
    let status = coordinating.wait().unwrap();
    assert!(
        status.success(),
        "{status}; {}; {}",
        servers.describe(),
        servers.failures(&shared)
    );
    for worker in &mut workers {
        drain(worker);
    }
    servers.cutting.stop_cutting();
    assert_same(&shared, &server, &local);
    servers.assert_nothing_is_left(&shared);
    for process in workers.iter().chain([&coordinating]) {
        assert_no_session_is_left(process.id());
    }
    assert!(
        servers.cutting.cuts() > 5 && servers.s3.errors() > 5,
        "{}",
        servers.describe()
    );
    eprintln!("{}", servers.describe());
}

/// What happens to a run at random moments.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillWorker,
    /// A worker is silent for longer than its lease, and is continued.
    SuspendWorker,
    KillCoordinator,
    RestartPostgres,
    CrashPostgres,
    CrashTemporal,
}

/// The last one needs Temporal.
const ALL_FAULTS: [Fault; 6] = [
    Fault::KillWorker,
    Fault::SuspendWorker,
    Fault::KillCoordinator,
    Fault::RestartPostgres,
    Fault::CrashPostgres,
    Fault::CrashTemporal,
];

/// Seconds of a lease where processes are killed.
const LEASE: u32 = 3;

/// Longer, since many units at a time delay each other.
const QUICKSTART_LEASE: u32 = 10;

/// The processes of a run under faults.
struct Processes<'a> {
    fixture: &'a RunFixture,
    servers: &'a Servers,
    coordinator: Child,
    workers: Vec<Child>,
    /// Numbers of suspended workers, and when they are continued.
    suspended: Vec<(usize, Instant)>,
    /// What processes had started when they were killed or suspended: their sessions.
    started: Vec<Process>,
}

impl<'a> Processes<'a> {
    fn start(fixture: &'a RunFixture, servers: &'a Servers) -> Self {
        let profile = &servers.profile;
        Self {
            fixture,
            servers,
            coordinator: coordinator(fixture, profile).spawn().unwrap(),
            workers: start_workers(fixture, profile, WORKERS),
            suspended: Vec::new(),
            started: Vec::new(),
        }
    }

    fn meet(&mut self, fault: Fault, rng: &mut ChaCha8Rng) {
        let (fixture, profile) = (self.fixture, &self.servers.profile);
        let number = rng.random_range(0..WORKERS);
        let is_suspended = self.suspended.iter().any(|(other, _)| *other == number);
        match fault {
            Fault::KillWorker => {
                self.suspended.retain(|(other, _)| *other != number);
                self.started.extend(descendants(&self.workers[number]));
                signal(&self.workers[number], Signal::KILL);
                self.workers[number].wait().unwrap();
                self.workers[number] = worker(fixture, profile).spawn().unwrap();
            }
            Fault::SuspendWorker if is_suspended => {}
            Fault::SuspendWorker => {
                self.started.extend(descendants(&self.workers[number]));
                signal(&self.workers[number], Signal::STOP);
                let until = Instant::now() + self.servers.lease + Duration::from_secs(2);
                self.suspended.push((number, until));
            }
            Fault::KillCoordinator => {
                self.started.extend(descendants(&self.coordinator));
                signal(&self.coordinator, Signal::KILL);
                self.coordinator.wait().unwrap();
                self.coordinator = coordinator(fixture, profile).spawn().unwrap();
            }
            Fault::RestartPostgres => self.servers.postgres.restart(),
            Fault::CrashPostgres => self.servers.postgres.crash(),
            Fault::CrashTemporal => {
                if let Some(temporal) = &self.servers.temporal {
                    temporal.crash();
                }
            }
        }
    }

    /// Continues the workers whose time has come, or all.
    fn continue_suspended(&mut self, all: bool) {
        let now = Instant::now();
        let workers = &self.workers;
        self.suspended.retain(|(number, until)| {
            let is_over = all || *until <= now;
            if is_over {
                signal(&workers[*number], Signal::CONT);
            }
            !is_over
        });
    }

    /// Waits until the coordinator ends, while faults happen; returns them.
    fn run(&mut self, pace: &Pace, rng: &mut ChaCha8Rng) -> Vec<Fault> {
        let (since, mut met) = (Instant::now(), Vec::new());
        let possible = ALL_FAULTS.len() - usize::from(self.servers.temporal.is_none());
        let mut next = Instant::now() + Duration::from_secs(3);
        loop {
            if let Some(status) = self.coordinator.try_wait().unwrap() {
                let (servers, fixture) = (self.servers, self.fixture);
                let is_well = status.success();
                assert!(
                    is_well,
                    "{status} after {met:?}; {}",
                    servers.failures(fixture)
                );
                self.continue_suspended(true);
                return met;
            }
            assert!(
                since.elapsed() < pace.max_run,
                "the run never ends; {met:?}"
            );
            self.continue_suspended(false);
            if Instant::now() >= next && met.len() < pace.faults {
                let fault = ALL_FAULTS[rng.random_range(0..possible)];
                self.meet(fault, rng);
                met.push(fault);
                next = Instant::now() + Duration::from_millis(rng.random_range(pace.pause.clone()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A run that meets random faults: the dataset of the local run, no call paid twice but those in flight, and nothing left.
fn survive_faults(
    servers: &Servers,
    (text, server): (&str, &Endpoint),
    (expected, asked): &(BTreeMap<PathBuf, Vec<u8>>, usize),
    pace: &Pace,
    rng: &mut ChaCha8Rng,
) {
    server.forget();
    let shared = RunFixture::bare(text);
    let mut processes = Processes::start(&shared, servers);
    let met = processes.run(pace, rng);
    let files = dataset(&shared);
    assert_eq!(files.len(), expected.len(), "other files after {met:?}");
    for (path, bytes) in &files {
        let is_same = expected.get(path) == Some(bytes);
        assert!(is_same, "{} differs after {met:?}", path.display());
    }
    assert_eq!(server.calls().len(), *asked, "the same conversations");
    for worker in &mut processes.workers {
        drain(worker);
    }
    // The registrations of killed workers end, and the next process that opens the journal removes them.
    std::thread::sleep(servers.lease + Duration::from_secs(1));
    let before = requests(server);
    let again = coordinator(&shared, &servers.profile).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(requests(server), before, "a call is paid after the end");
    let spent = spent(&shared);
    let late = assert_each_request_is_journaled(|query| servers.sql(&shared, query), server);
    servers.assert_nothing_is_left(&shared);
    for worker in &processes.workers {
        assert_no_session_is_left(worker.id());
    }
    assert_no_session_is_left(processes.coordinator.id());
    wait_for_end(&processes.started, Duration::from_secs(10));
    eprintln!(
        "{met:?}: {before} requests for {asked} calls, {late} late replies, {spent:?}; {}",
        servers.describe()
    );
}

/// The seed of the faults, which is printed.
fn seed() -> u64 {
    let seed = number_of("SOAK_SEED").unwrap_or_else(rand::random::<u64>);
    eprintln!("seed of the faults: {seed} (SOAK_SEED={seed} repeats them)");
    seed
}

/// A number in the environment.
fn number_of(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn random_faults_change_nothing() {
    if !interpreter_is_here() {
        return;
    }
    let seed = seed();
    let soak = number_of("SOAK_SECONDS").map(Duration::from_secs);
    let (faults, mean, pace) = match soak {
        Some(_) => (S3Faults::full(seed), Duration::from_secs(5), SOAK_PACE),
        None => {
            let faults = S3Faults {
                errors: 0.05,
                slow: 0.01,
                delay: Duration::from_secs(3),
                seed,
            };
            (faults, Duration::from_secs(2), PACE)
        }
    };
    let is_queued = cfg!(feature = "temporal");
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(700)).await;
    let text = recipe(&openai(&server.base_url(), FREE), "");
    let local = local_run(&server, &tasks, &text).await;

    let (mut rng, since) = (ChaCha8Rng::seed_from_u64(seed), Instant::now());
    loop {
        // Each run has servers of its own: the prefix of a bucket belongs to one run folder.
        let settings = tempfile::tempdir().unwrap();
        let faults = S3Faults {
            seed: rng.random(),
            ..faults
        };
        let servers = Servers::start(settings.path(), (faults, mean), LEASE, is_queued);
        let Some(servers) = servers else {
            return;
        };
        survive_faults(&servers, (&text, &server), &local, &pace, &mut rng);
        if soak.is_none_or(|limit| since.elapsed() >= limit) {
            return;
        }
    }
}

/// The quickstart, with a model behind an endpoint that counts: its own expert makes no calls.
fn quickstart(teacher: &str) -> String {
    let path = Path::new(ROOT).join("pipelines/recipes/quickstart.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let named = format!("name = 't'\nteacher = {teacher}\n");
    let text = text.replace("name = \"quickstart\"\n", &named);
    text.replace("[teacher]\nkind = \"expert\"\nfaults = 0.1\n", "")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; `just soak cluster` makes it"]
async fn random_faults_change_nothing_in_the_quickstart() {
    if !interpreter_is_here() {
        return;
    }
    let (seed, settings) = (seed(), tempfile::tempdir().unwrap());
    let faults = (S3Faults::full(seed), Duration::from_secs(5));
    let is_queued = cfg!(feature = "temporal");
    let servers = Servers::start(settings.path(), faults, QUICKSTART_LEASE, is_queued);
    let Some(servers) = servers else {
        return;
    };
    let tasks = Arc::new(OnceLock::new());
    let server = expert_endpoint(tasks.clone(), Duration::from_millis(300)).await;
    let text = quickstart(&openai(&server.base_url(), FREE));
    let local = local_run(&server, &tasks, &text).await;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    survive_faults(
        &servers,
        (&text, &server),
        &local,
        &QUICKSTART_PACE,
        &mut rng,
    );
}
