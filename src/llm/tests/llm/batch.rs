//! Batches against a real server on the loopback interface, including every failure of a batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pybench_llm::{
    Batches, ChatError, ChatModel, ChatRequest, Metered, OpenAi, OpenAiOptions, Reply,
};
use pybench_run::Price;
use pybench_run::{BudgetCap, ExitCode, RunError, RunFolder, Spent};
use pybench_testing::batches::{Act, BatchServer, Outcome, Point};
use pybench_testing::endpoint::Answer;
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling};
use serde_json::{Value, json};

const FREE: BudgetCap = BudgetCap {
    micro_usd: None,
    tokens: None,
};
/// Cost of a reply, and the amount reserved for one.
const CALL: u64 = 110;
const MOST: u64 = 200 + 2 * 16 + 800;

fn options(server: &BatchServer) -> OpenAiOptions {
    OpenAiOptions {
        model: "m".into(),
        base_url: server.base_url(),
        key: Some("sk-very-secret".to_owned().into()),
        headers: BTreeMap::new(),
        price: Some(Price {
            prompt: 1.0,
            completion: 1.0,
        }),
        timeout: Duration::from_secs(20),
        extra: serde_json::Map::new(),
        restore_python_tag: false,
    }
}

/// An endpoint that echoes its input, a run, and a model whose requests fail finally after two batches.
struct World {
    server: BatchServer,
    at: tempfile::TempDir,
    teacher: Metered<OpenAi>,
    folder: Arc<RunFolder>,
}

impl World {
    async fn new() -> Self {
        Self::within(FREE).await
    }

    async fn within(cap: BudgetCap) -> Self {
        let server = BatchServer::start(|request: Value| {
            let said = request["messages"][0]["content"]
                .as_str()
                .unwrap()
                .trim()
                .to_owned();
            std::future::ready(Answer::Content(said))
        })
        .await;
        let at = tempfile::tempdir().unwrap();
        let folder = Arc::new(RunFolder::open(at.path(), "").unwrap());
        let teacher = teacher(&server, &folder, cap);
        Self {
            server,
            at,
            teacher,
            folder,
        }
    }

    async fn twisted(twist: impl Fn(&mut Outcome) + Send + Sync + 'static) -> Self {
        let world = Self::new().await;
        world.server.twist(move |outcome| {
            if outcome.number == 1 {
                twist(outcome);
            }
        });
        world
    }

    /// Ends the simulated process and starts another one.
    fn restart(self) -> Self {
        let Self {
            server,
            at,
            teacher: gone,
            folder,
        } = self;
        drop((gone, folder));
        let folder = Arc::new(RunFolder::open(at.path(), "").unwrap());
        let teacher = teacher(&server, &folder, FREE);
        Self {
            server,
            at,
            teacher,
            folder,
        }
    }

    async fn ask(&self, sample: u32) -> Result<Reply, ChatError> {
        ask(&self.teacher, sample).await
    }

    /// Sends `samples` requests and processes the batch.
    async fn run_round(&self, samples: u32) -> Result<(), RunError> {
        for sample in 0..samples {
            let asked = self.ask(sample).await;
            assert!(
                matches!(asked, Ok(_) | Err(ChatError::Deferred)),
                "{asked:?}"
            );
        }
        self.teacher.batches().unwrap().run().await
    }

    /// Result of each request: the reply, or the kind of failure.
    async fn ends(&self, samples: u32) -> Vec<String> {
        let mut ends = Vec::new();
        for sample in 0..samples {
            ends.push(match self.ask(sample).await {
                Ok(reply) => reply.content,
                Err(error) => error.kind().to_owned(),
            });
        }
        ends
    }

    fn spent(&self) -> Spent {
        self.folder.journal().spent().unwrap()
    }
}

fn teacher(server: &BatchServer, folder: &Arc<RunFolder>, cap: BudgetCap) -> Metered<OpenAi> {
    let batches = Batches::new(options(server), folder.clone(), 2).unwrap();
    let live = OpenAi::new(options(server)).unwrap();
    Metered::new(live, folder.clone(), cap, "f").with_batches(batches)
}

async fn ask(teacher: &dyn ChatModel, sample: u32) -> Result<Reply, ChatError> {
    let sampling = Sampling {
        max_tokens: 800,
        ..Sampling::default()
    };
    let messages = [Message::new(Role::User, format!("{sample:<200}"))];
    let request = ChatRequest {
        key: &Digest::of_bytes(b"task"),
        sample,
        messages: &messages,
        sampling: &sampling,
        stop: &[],
        pictures: &[],
    };
    teacher.reply(&request).await
}

/// Index of the line with this reply.
fn at(outcome: &Outcome, said: &str) -> usize {
    let content = format!("\"content\":\"{said}\"");
    let found = outcome
        .output
        .iter()
        .position(|line| line.contains(&content));
    found.expect("a line with this reply")
}

#[tokio::test]
async fn a_round_is_one_batch_and_its_replies_are_stored() {
    let world = World::new().await;
    world.run_round(3).await.unwrap();
    assert_eq!(world.ends(3).await, ["0", "1", "2"]);
    assert_eq!(world.server.batches(), [3]);
    let spent = world.spent();
    assert_eq!(
        (spent.calls, spent.uncertain, spent.micro_usd),
        (3, 0, 3 * CALL)
    );
    world.run_round(3).await.unwrap();
    assert_eq!(world.server.batches(), [3], "no further batch is sent");
    assert_eq!(world.restart().ends(3).await, ["0", "1", "2"]);
}

#[tokio::test]
async fn requests_without_a_reply_are_sent_again() {
    type Case = (&'static str, fn(&mut Outcome), u64);
    let cases: [Case; 8] = [
        (
            "missing",
            |outcome| drop(outcome.output.remove(at(outcome, "1"))),
            1,
        ),
        (
            "failed",
            |outcome| replace(outcome, "\"status_code\":200", "\"status_code\":500"),
            1,
        ),
        (
            "busy",
            |outcome| replace(outcome, "\"status_code\":200", "\"status_code\":429"),
            0,
        ),
        (
            "unreadable",
            |outcome| replace(outcome, "{\"id\"", "{\"id"),
            1,
        ),
        (
            "a stranger's",
            |outcome| replace(outcome, "\"custom_id\":\"", "\"custom_id\":\"0"),
            1,
        ),
        (
            "empty",
            |outcome| replace(outcome, "\"choices\"", "\"choice\""),
            1,
        ),
        (
            "expired",
            |outcome| {
                let line: Value =
                    serde_json::from_str(&outcome.output.remove(at(outcome, "1"))).unwrap();
                let error = json!({"code": "batch_expired", "message": "late"});
                let line =
                    json!({"custom_id": line["custom_id"], "response": null, "error": error});
                outcome.error.push(line.to_string());
                outcome.status = "expired".to_owned();
            },
            0,
        ),
        (
            "unlisted and expired",
            |outcome| {
                outcome.output.remove(at(outcome, "1"));
                outcome.status = "expired".to_owned();
            },
            0,
        ),
    ];
    for (name, twist, charged) in cases {
        let world = World::twisted(twist).await;
        world.run_round(3).await.unwrap();
        assert_eq!(world.ends(3).await, ["0", "deferred", "2"], "{name}");
        let spent = world.spent();
        assert_eq!(spent.uncertain, charged, "{name}");
        world.run_round(3).await.unwrap();
        assert_eq!(world.ends(3).await, ["0", "1", "2"], "{name}");
        assert_eq!(world.server.batches(), [3, 1], "{name}");
        assert_eq!(world.spent().micro_usd, 3 * CALL + charged * MOST, "{name}");
    }
}

fn replace(outcome: &mut Outcome, from: &str, to: &str) {
    let at = at(outcome, "1");
    assert!(outcome.output[at].contains(from), "{}", outcome.output[at]);
    outcome.output[at] = outcome.output[at].replacen(from, to, 1);
}

#[tokio::test]
async fn the_first_of_duplicate_replies_counts() {
    let world = World::twisted(|outcome| {
        let first = outcome.output[at(outcome, "1")].clone();
        let second = first.replace("\"content\":\"1\"", "\"content\":\"another\"");
        outcome.output.push(second);
        outcome.output.push(first);
    })
    .await;
    world.run_round(3).await.unwrap();
    assert_eq!(world.ends(3).await, ["0", "1", "2"]);
    assert_eq!(world.spent().micro_usd, 3 * CALL);
}

#[tokio::test]
async fn rejected_requests_are_not_sent_again() {
    let world = World::twisted(|outcome| {
        replace(outcome, "\"status_code\":200", "\"status_code\":400");
        replace_key(outcome);
    })
    .await;
    world.run_round(3).await.unwrap();
    let error = world.ask(1).await.unwrap_err();
    assert_eq!(error.kind(), "rejected");
    assert!(
        !error.retryable() && !error.to_string().contains("very-secret"),
        "{error}"
    );
    world.run_round_of(&[0, 2]).await;
    assert_eq!(world.server.batches(), [3]);
    assert_eq!(
        (world.spent().calls, world.spent().uncertain),
        (2, 0),
        "a rejected request is free"
    );
    // Another process sends the request again.
    let world = world.restart();
    world.run_round(3).await.unwrap();
    assert_eq!(world.ends(3).await, ["0", "1", "2"]);
}

/// The endpoint repeats the API key in its error message.
fn replace_key(outcome: &mut Outcome) {
    let at = outcome
        .output
        .iter()
        .position(|line| line.contains("\"status_code\":400"));
    let line = &mut outcome.output[at.unwrap()];
    let mut value: Value = serde_json::from_str(line).unwrap();
    value["response"]["body"] = json!({"error": {"message": "bad sk-very-secret"}});
    *line = value.to_string();
}

impl World {
    async fn run_round_of(&self, samples: &[u32]) {
        for sample in samples {
            let _ = self.ask(*sample).await;
        }
        self.teacher.batches().unwrap().run().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_fails_after_the_maximum_number_of_batches() {
    let world = World::new().await;
    world.server.twist(|outcome| {
        outcome.output.clear();
        outcome.status = "cancelled".to_owned();
    });
    for _ in 0..2 {
        world.run_round(1).await.unwrap();
    }
    let error = world.ask(0).await.unwrap_err();
    assert_eq!(error.kind(), "unanswered");
    assert!(
        !error.retryable() && error.to_string().contains("after 2 batches"),
        "{error}"
    );
    assert_eq!((world.spent().calls, world.spent().micro_usd), (0, 0));
}

#[tokio::test]
async fn the_error_of_a_rejected_batch_names_the_invalid_requests() {
    let refusal = |errors: Value| {
        move |outcome: &mut Outcome| {
            outcome.status = "failed".to_owned();
            outcome.output.clear();
            outcome.errors = json!({"object": "list", "data": errors});
        }
    };
    let cases = [
        (
            json!([{"code": "invalid_model", "message": "no m"}]),
            ["rejected"; 3],
        ),
        (
            json!([{"code": "token_limit_exceeded", "message": "too much"}]),
            ["deferred"; 3],
        ),
        (json!([]), ["rejected"; 3]),
    ];
    for (errors, ends) in cases {
        let world = World::twisted(refusal(errors.clone())).await;
        world.run_round(3).await.unwrap();
        assert_eq!(world.ends(3).await, ends, "{errors}");
        assert_eq!(world.spent().uncertain, 0);
    }
    let line = json!([{"code": "invalid", "message": "line", "line": 2}]);
    let world = World::twisted(refusal(line)).await;
    world.run_round(3).await.unwrap();
    let ends = world.ends(3).await;
    let rejected = ends.iter().filter(|end| *end == "rejected").count();
    assert_eq!(rejected, 1, "{ends:?}");
    world.run_round_of(&[]).await;
    assert_eq!(
        world.server.batches().len(),
        2,
        "the other requests are sent again"
    );
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_split() {
    let world = World::new().await;
    world.server.twist(|outcome| {
        if outcome.output.len() > 2 {
            outcome.status = "failed".to_owned();
            outcome.output.clear();
            let errors = [json!({"code": "token_limit_exceeded", "message": "too much"})];
            outcome.errors = json!({"data": errors});
        }
    });
    world.run_round(5).await.unwrap();
    assert_eq!(world.spent().calls, 0, "no request was processed");
    world.run_round(5).await.unwrap();
    assert_eq!(world.ends(5).await, ["0", "1", "2", "3", "4"]);
    assert_eq!(world.server.batches(), [5, 2, 2, 1]);
    assert_eq!(world.spent().micro_usd, 5 * CALL);
}

#[tokio::test]
async fn oversized_files_are_not_read_to_the_end() {
    let long = |outcome: &mut Outcome| {
        let at = at(outcome, "1");
        let line = outcome.output[at].replace("\"1\"", &format!("\"{}\"", "x".repeat(5 << 20)));
        outcome.output[at] = line;
    };
    let world = World::twisted(long).await;
    world.run_round(3).await.unwrap();
    assert_eq!(
        world.ends(3).await,
        ["0", "deferred", "2"],
        "one line is too long"
    );

    for hostile in [flood_of_bytes, flood_of_lines] {
        let world = World::twisted(hostile).await;
        world.run_round(3).await.unwrap();
        let ends = world.ends(3).await;
        assert_eq!(ends, ["deferred"; 3]);
        assert_eq!(world.spent().uncertain, 3, "it may have been charged");
    }
}

fn flood_of_bytes(outcome: &mut Outcome) {
    outcome.output.insert(0, "x".repeat(20 << 20));
}

fn flood_of_lines(outcome: &mut Outcome) {
    let noise = vec!["{}".to_owned(); 400_000];
    outcome.output.splice(0..0, noise);
}

#[tokio::test]
async fn requests_that_were_never_sent_are_deleted_and_free() {
    let world = World::new().await;
    for sample in 0..3 {
        assert_eq!(world.ask(sample).await, Err(ChatError::Deferred));
        assert_eq!(world.ask(sample).await, Err(ChatError::Deferred), "once");
    }
    assert_eq!(world.spent().micro_usd, 3 * MOST);
    let world = world.restart();
    assert_eq!((world.spent().calls, world.spent().micro_usd), (0, 0));
    world.teacher.batches().unwrap().run().await.unwrap();
    assert_eq!(world.server.times(Point::Upload), 0);
}

#[tokio::test]
async fn the_limit_holds_and_money_freed_by_a_batch_is_used() {
    // The budget allows one reservation at a time and three calls in total.
    let most = MOST + 2 * CALL + CALL / 2;
    let cap = BudgetCap {
        micro_usd: Some(most),
        tokens: None,
    };
    let world = World::within(cap).await;
    let live = OpenAi::new(options(&world.server)).unwrap();
    let live = Metered::new(live, world.folder.clone(), cap, "other");
    for batches in 1..=3 {
        world.run_round_of(&[0, 1, 2, 3]).await;
        assert_eq!(world.server.batches(), vec![1; batches]);
        assert_eq!(world.spent().micro_usd, batches as u64 * CALL);
        if batches < 3 {
            let next = world.ask(batches as u32).await;
            assert_eq!(next, Err(ChatError::Deferred));
            // The budget does not count as used up, because the pending batch will free a part of it.
            assert_eq!(ask(&live, 0).await, Err(ChatError::Deferred));
            assert!(world.spent().micro_usd <= most);
        }
    }
    assert!(matches!(ask(&live, 0).await, Err(ChatError::Budget(_))));
    assert!(matches!(world.ask(3).await, Err(ChatError::Budget(_))));
}

#[tokio::test]
async fn an_endpoint_without_batches_is_recognized_and_nothing_stays_reserved() {
    for (point, status) in [(Point::Upload, 404), (Point::Make, 400)] {
        let world = World::new().await;
        world.server.script(move |at, _| match at == point {
            true => Act::Status(status),
            false => Act::Serve,
        });
        let error = world.run_round(2).await.unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Endpoint);
        assert!(error.to_string().contains("remove `batch`"), "{error}");
        assert_eq!(world.spent().calls, 0);
    }
    // If the API key is refused, the batch stays for the next process.
    let world = World::new().await;
    world.server.script(|at, _| match at {
        Point::Make => Act::Status(401),
        _ => Act::Serve,
    });
    world.run_round(2).await.unwrap_err();
    world.server.script(|_, _| Act::Serve);
    let world = world.restart();
    world.teacher.batches().unwrap().run().await.unwrap();
    assert_eq!(world.ends(2).await, ["0", "1"]);
    assert_eq!(
        (world.server.times(Point::Upload), world.server.batches()),
        (0, vec![2])
    );
}

#[tokio::test]
async fn requests_of_a_lost_file_are_charged_and_sent_again() {
    let world = World::new().await;
    world.server.script(|at, met| match (at, met) {
        (Point::Content, 1) => Act::Status(404),
        _ => Act::Serve,
    });
    world.run_round(2).await.unwrap();
    assert_eq!(world.ends(2).await, ["deferred"; 2]);
    assert_eq!(world.spent().uncertain, 2);
    world.teacher.batches().unwrap().run().await.unwrap();
    assert_eq!(world.ends(2).await, ["0", "1"]);
}
