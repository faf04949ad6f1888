//! Teachers that are asked in batches: the same trajectories, one batch a wave, nothing lost and nothing asked
//! for twice over kills, and every fault of a batch a failure of its own kind.

use std::os::unix::process::CommandExt;
use std::process::Child;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::support::batches::{Act, BatchServer, Point};
use crate::support::fixture::{
    ExpertServer, RunFixture, code, expert_endpoint, interpreter_is_here, openai, recipe,
};
use pybench_agent::format;
use pybench_llm::token_bound;
use pybench_rollout as rollout;
use pybench_run::{ExitCode, FormatChoice, RunError, UnitState};
use pybench_types::task::Task;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::OnceCell;

/// A call is 110 tokens: 220 millionths of a dollar, or half of it.
const PRICED: &str = ", price = { prompt = 2.0, completion = 2.0 }";
const BATCHED: &str = ", price = { prompt = 2.0, completion = 2.0 }, batch = true";
const CALL: u64 = 110;
const TASKS: usize = 3;
const REST: &str = "[rollout]\nsamples = 2\nconcurrency = 2\n\n[budget]\nusd = 1.0\n";

/// An expert who answers in batches.
async fn server(tasks: Arc<OnceLock<Vec<Task>>>) -> BatchServer {
    let expert = Arc::new(ExpertServer::new());
    BatchServer::start(move |request| {
        let (tasks, expert) = (tasks.clone(), expert.clone());
        async move { expert.answer(tasks.get().unwrap(), &request) }
    })
    .await
}

/// In this process; replies are shared within this run only.
async fn rollout(fixture: &RunFixture) -> Result<(), RunError> {
    let mut context = fixture.context();
    context.project_root = fixture.path(".");
    rollout::run(&context).await
}

fn replies(fixture: &RunFixture) -> Vec<usize> {
    let trajectories = fixture.trajectories();
    trajectories.iter().map(|t| t.turns.len()).collect()
}

/// What a run with batches comes to, undisturbed: the same at every server.
struct Expected {
    tasks: Vec<Task>,
    artifact: String,
    calls: u64,
    batches: Vec<usize>,
}

impl Expected {
    async fn new() -> Self {
        let tasks: Arc<OnceLock<Vec<Task>>> = Arc::default();
        let server = server(tasks.clone()).await;
        let text = recipe(TASKS, &openai(&server.base_url(), BATCHED), REST);
        let fixture = RunFixture::new(&text).await;
        tasks.set(fixture.tasks.clone()).unwrap();
        rollout(&fixture).await.unwrap();
        let calls = replies(&fixture).iter().sum::<usize>() as u64;
        assert_eq!(fixture.spent().micro_usd, CALL * calls);
        Self {
            artifact: fixture.artifact(),
            batches: server.batches(),
            tasks: fixture.tasks,
            calls,
        }
    }
}

/// A server and a recipe of its own, and what the run comes to, which is computed once.
struct Undisturbed {
    server: BatchServer,
    text: String,
    expected: &'static Expected,
}

impl std::ops::Deref for Undisturbed {
    type Target = Expected;

    fn deref(&self) -> &Expected {
        self.expected
    }
}

impl Undisturbed {
    async fn new() -> Self {
        static EXPECTED: OnceCell<Expected> = OnceCell::const_new();
        let expected = EXPECTED.get_or_init(Expected::new).await;
        let server = server(Arc::new(expected.tasks.clone().into())).await;
        Self {
            text: recipe(TASKS, &openai(&server.base_url(), BATCHED), REST),
            server,
            expected,
        }
    }

    /// The same run, which came to the same whatever came in between.
    fn check(&self, fixture: &RunFixture, case: &str) {
        assert!(
            fixture.artifact() == self.artifact,
            "{case}: other trajectories"
        );
        let spent = fixture.spent();
        assert_eq!(spent.uncertain, 0, "{case}");
        assert_eq!(
            (spent.calls, spent.micro_usd),
            (self.calls, CALL * self.calls),
            "{case}"
        );
        let asked = self.server.asked();
        assert!(
            asked.values().all(|times| *times == 2),
            "{case}: once for each sample"
        );
        assert_eq!(self.server.batches(), self.batches, "{case}");
        assert_eq!(fixture.journal().all_open_batches().unwrap(), [], "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trajectories_are_those_of_live_calls_and_waves_are_batches() {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    let tasks: Arc<OnceLock<Vec<Task>>> = Arc::default();
    let live = expert_endpoint(tasks.clone(), Duration::ZERO).await;
    let fixture = RunFixture::new(&recipe(TASKS, &openai(&live.base_url(), PRICED), REST)).await;
    tasks.set(fixture.tasks.clone()).unwrap();
    rollout(&fixture).await.unwrap();
    assert!(fixture.artifact() == run.artifact, "the same replies");
    assert_eq!(
        fixture.spent().micro_usd,
        2 * CALL * run.calls,
        "twice the price"
    );

    // A wave asks for the nth reply of every trajectory that has one.
    let turns = replies(&fixture);
    let most = turns.iter().copied().max().unwrap();
    let waves = (1..=most).map(|wave| turns.iter().filter(|n| **n >= wave).count());
    assert_eq!(run.batches, waves.collect::<Vec<_>>());
    assert!(most > 1, "{turns:?}");
}

fn start(fixture: &RunFixture) -> Child {
    fixture.rollout(&[]).process_group(0).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_around_an_upload_lose_nothing_and_ask_for_nothing_twice() {
    kills_lose_nothing(&[
        (Point::Upload, 1, Act::HangBefore),
        (Point::Upload, 2, Act::HangAfter),
        (Point::Make, 2, Act::HangBefore),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_after_a_batch_is_made_lose_nothing_and_ask_for_nothing_twice() {
    kills_lose_nothing(&[
        (Point::Make, 1, Act::HangAfter),
        (Point::Make, 2, Act::HangAfter),
        (Point::Look, 1, Act::HangBefore),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_around_replies_lose_nothing_and_ask_for_nothing_twice() {
    kills_lose_nothing(&[
        (Point::Look, 5, Act::HangAfter),
        (Point::Content, 1, Act::HangBefore),
        (Point::Content, 2, Act::HangAfter),
    ])
    .await;
}

async fn kills_lose_nothing(moments: &[(Point, usize, Act)]) {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    for &(point, times, act) in moments {
        let case = format!("{act:?} at the {times}. {point:?}");
        let fixture = RunFixture::new(&run.text).await;
        run.server.forget();
        run.server
            .script(move |at, met| match (at, met) == (point, times) {
                true => act,
                false => Act::Serve,
            });
        let mut child = start(&fixture);
        run.server.hung().await;
        kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        run.server.script(|_, _| Act::Serve);
        let status = start(&fixture).wait().unwrap();
        assert!(status.success(), "{case}: {status}");
        run.check(&fixture, &case);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_and_failing_servers_are_lived_with() {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    for act in [Act::BreakAfter, Act::Status(500), Act::Status(429)] {
        let fixture = RunFixture::new(&run.text).await;
        run.server.forget();
        run.server
            .script(move |_, met| if met == 1 { act } else { Act::Serve });
        rollout(&fixture).await.unwrap();
        run.check(&fixture, &format!("{act:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_leaves_the_batch_where_it_is() {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    let fixture = RunFixture::new(&run.text).await;
    run.server.forget();
    run.server.script(|at, met| match (at, met) {
        (Point::Look, 2) => Act::HangBefore,
        _ => Act::Serve,
    });
    let mut rollout = fixture.rollout(&[]);
    let child = rollout
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    run.server.hung().await;
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(130));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("round 1: 6 requests in batch batch_1, in_progress, 0 of 6 done"),
        "{said}"
    );
    assert!(said.contains("batch batch_1 is still pending"), "{said}");
    let shown = pybench_synthesize::status::funnel(&fixture.journal())
        .unwrap()
        .to_string();
    assert!(
        shown.contains("openai:m: batch round 1: 6 requests pending in a batch (batch_1)"),
        "{shown}"
    );
    run.server.script(|_, _| Act::Serve);
    assert!(start(&fixture).wait().unwrap().success());
    run.check(&fixture, "Ctrl-C");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_batch_keeps_what_was_answered() {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    for status in ["expired", "cancelled"] {
        let fixture = RunFixture::new(&run.text).await;
        run.server.forget();
        run.server.script(|_, _| Act::Serve);
        run.server.twist(move |outcome| {
            if outcome.number == 1 {
                outcome.status = status.to_owned();
                outcome.output.truncate(4);
            }
        });
        rollout(&fixture).await.unwrap();
        assert!(fixture.artifact() == run.artifact);
        let spent = fixture.spent();
        assert_eq!((spent.uncertain, spent.micro_usd), (0, CALL * run.calls));
        // Four go on, and two are asked again, in one batch.
        assert_eq!(run.server.batches()[..2], [6, 6]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_batch_goes_beyond_the_cap() {
    if !interpreter_is_here() {
        return;
    }
    let run = Undisturbed::new().await;
    // Room for one request and little more.
    let opening = |task: &Task| token_bound(&format(FormatChoice::Pybench).initial_messages(task));
    let tasks = RunFixture::new(&run.text).await.tasks;
    let cap = tasks.iter().map(opening).max().unwrap() + 1000 + 1500;
    let fixture = RunFixture::new(&run.text.replace("usd = 1.0", &format!("tokens = {cap}"))).await;
    run.server.forget();
    run.server.script(|_, _| Act::Serve);
    run.server.twist(|_| {});
    let error = rollout(&fixture).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Budget, "{error}");
    assert!(fixture.spent().tokens <= cap);
    // The next process gives back what was noted and not sent.
    drop(fixture.context());
    let (spent, batches) = (fixture.spent(), run.server.batches());
    assert_eq!(spent.calls, batches.iter().sum::<usize>() as u64);
    assert_eq!(spent.tokens, CALL * spent.calls, "nothing is left reserved");
    assert!(
        !batches.is_empty() && batches.iter().all(|requests| *requests < 2 * TASKS),
        "{batches:?}"
    );
    let pending = fixture
        .units()
        .iter()
        .filter(|unit| unit.state == UnitState::Pending)
        .count();
    assert!(pending > 0);
}
