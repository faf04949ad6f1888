use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pybench_llm::{ChatModel, ChatRequest, Reply};
use pybench_run::{Interrupt, Price};
use pybench_types::id::Digest;
use pybench_types::trajectory::{End, Message, OutputFile, Role, Sampling, Usage};

use super::*;
use crate::record::tests::{attempt, fingerprint};
use crate::record::{AgentKind, Outcome, Scores};
use crate::stats::{Measure, summarize};

type Say = dyn Fn(&str, usize) -> Result<String, ChatError> + Send + Sync;

/// A judge whose reply is a function of the prompt and the number of images.
struct ScriptedJudge {
    say: Box<Say>,
    calls: AtomicUsize,
}

#[async_trait]
impl ChatModel for ScriptedJudge {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(Reply {
            content: (self.say)(&request.messages[0].content, request.pictures.len())?,
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        })
    }
}

fn scripted(
    say: impl Fn(&str, usize) -> Result<String, ChatError> + Send + Sync + 'static,
) -> (Arc<ScriptedJudge>, Judge) {
    let model = Arc::new(ScriptedJudge {
        say: Box::new(say),
        calls: AtomicUsize::new(0),
    });
    (model.clone(), Judge::new(model, true, Interrupt::new()))
}

struct TempStore(tempfile::TempDir);

impl TempStore {
    fn put(&self, path: &str, bytes: &[u8]) -> OutputFile {
        let id = Digest::of_bytes(bytes);
        let folder = self.0.path().join(&id.as_str()[..2]);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(id.as_str()), bytes).unwrap();
        OutputFile {
            path: path.to_owned(),
            id,
            size: bytes.len() as u64,
        }
    }

    fn attempt(&self, agent: &str, task: u32, answer: &str) -> Attempt {
        let mut one = attempt(agent, &task.to_string(), 0, task.is_multiple_of(2));
        let trajectory = Trajectory {
            id: Digest::of_bytes(answer.as_bytes()),
            task: Digest::of_bytes(b"t"),
            teacher: agent.into(),
            sampling: Sampling::default(),
            sample: 0,
            seed: 0,
            environment: String::new(),
            format: "pybench".into(),
            messages: vec![
                Message::new(Role::System, "secret system prompt"),
                Message::new(Role::User, "Do it."),
                Message::new(Role::Assistant, answer),
            ],
            turns: Vec::new(),
            outputs: Vec::new(),
            end: End::Finished,
            fault: None,
            corrects: None,
        };
        one.trajectory = Some(self.put("t.json", &serde_json::to_vec(&trajectory).unwrap()));
        let mut png = Vec::new();
        let picture = image::RgbImage::new(20, 10);
        picture
            .write_to(&mut std::io::Cursor::new(&mut png), image::ImageFormat::Png)
            .unwrap();
        one.outputs = vec![
            self.put("output/t.csv", b"name,value\nx,41\n"),
            self.put("output/p.png", &png),
        ];
        one
    }

    fn evaluation(&self) -> Evaluation {
        let mut attempts: Vec<_> = (0..10)
            .map(|task| self.attempt("m", task, "good answer"))
            .collect();
        attempts.extend((0..10).map(|task| self.attempt("base", task, "poor answer")));
        Evaluation::new(
            fingerprint(&[("m", AgentKind::Model), ("base", AgentKind::Model)]),
            attempts,
        )
    }

    async fn judge(
        &self,
        evaluation: &Evaluation,
        llm_judge: &Judge,
        against: Option<&str>,
    ) -> (Evaluation, JudgeCounts) {
        let options = JudgeOptions {
            against: against.map(str::to_owned),
            concurrency: 3,
        };
        judge(evaluation, &[self.0.path().to_owned()], llm_judge, &options).await
    }
}

fn temp_store() -> TempStore {
    TempStore(tempfile::tempdir().unwrap())
}

/// The evaluation without judge verdicts.
fn without_judgments(evaluation: &Evaluation) -> Evaluation {
    let mut plain = evaluation.clone();
    plain.attempts.iter_mut().for_each(|a| a.judgment = None);
    plain
}

#[tokio::test]
async fn the_judge_sees_request_steps_files_and_images() {
    let store = temp_store();
    let (_, judge) = scripted(|prompt, pictures| {
        assert_eq!(pictures, 1);
        for part in [
            "Do it.",
            "good answer",
            "name | value",
            "x | 41",
            "20 × 10 pixels, number 1",
        ] {
            assert!(prompt.contains(part), "{part} in {prompt}");
        }
        assert!(!prompt.contains("secret system prompt"));
        Ok("Fine.\nVERDICT: PASS".into())
    });
    let evaluation = Evaluation::new(
        fingerprint(&[("m", AgentKind::Model)]),
        vec![store.attempt("m", 1, "good answer")],
    );
    let (judged, counts) = store.judge(&evaluation, &judge, None).await;
    assert_eq!(
        (counts.judged, counts.abstained, counts.failures.len()),
        (1, 0, 0)
    );
    let judgment = judged.attempts[0].judgment.clone().unwrap();
    assert_eq!(
        (judgment.passed, judgment.reason.as_str()),
        (Some(true), "Fine.\nVERDICT: PASS")
    );
    assert_eq!(without_judgments(&judged), evaluation);
}

#[tokio::test]
async fn an_unreachable_judge_changes_no_rate_and_is_not_called_forever() {
    let store = temp_store();
    let evaluation = store.evaluation();
    let before = summarize(&evaluation);
    let (model, judge) = scripted(|_, _| Err(ChatError::Connection("refused".into())));
    let (judged, counts) = store.judge(&evaluation, &judge, Some("base")).await;
    assert_eq!(judged, evaluation);
    assert_eq!(summarize(&judged), before);
    assert_eq!(counts.failures["connection"], 20);
    assert!(
        model.calls.load(Ordering::SeqCst) <= 8,
        "the judge is not called again and again"
    );
}

#[tokio::test]
async fn abstentions_are_missing_values_and_change_no_other_rate() {
    let store = temp_store();
    let evaluation = store.evaluation();
    let (_, judge) = scripted(|prompt, _| {
        Ok(if prompt.contains("good") {
            "VERDICT: PASS".into()
        } else {
            "I cannot say.".into()
        })
    });
    let (judged, counts) = store.judge(&evaluation, &judge, None).await;
    assert_eq!((counts.judged, counts.abstained), (10, 10));
    assert_eq!(without_judgments(&judged), evaluation);
    let summaries = summarize(&judged);
    let of = |agent: &str| summaries.iter().find(|s| s.agent == agent).unwrap();
    assert_eq!(of("m").measure(Measure::Judge).unwrap().overall.rate, 1.0);
    assert!(
        of("base").measure(Measure::Judge).is_none(),
        "a missing value is not a failure"
    );
}

#[tokio::test]
async fn pairs_are_judged_in_both_orders() {
    let store = temp_store();
    let evaluation = store.evaluation();
    let pair = |prompt: &str| prompt.contains("final answer of A");
    let first_is_good = |prompt: &str| {
        let at = |text: &str| prompt.find(text).unwrap();
        at("good answer") < at("poor answer")
    };
    let (_, fair) = scripted(move |prompt, _| {
        let best = if pair(prompt) && !first_is_good(prompt) {
            "B"
        } else {
            "A"
        };
        Ok(format!(
            "VERDICT: {}",
            if pair(prompt) { best } else { "PASS" }
        ))
    });
    let (judged, _) = store.judge(&evaluation, &fair, Some("base")).await;
    let duels = summarize(&judged)
        .into_iter()
        .find(|s| s.agent == "m")
        .unwrap()
        .duels;
    assert_eq!((duels["base"].win, duels["base"].lose), (10, 0));
    // A judge that always prefers the first attempt gives only ties.
    let (_, partial) = scripted(move |prompt, _| {
        Ok(format!(
            "VERDICT: {}",
            if pair(prompt) { "A" } else { "PASS" }
        ))
    });
    let (judged, _) = store.judge(&evaluation, &partial, Some("base")).await;
    let duels = summarize(&judged)
        .into_iter()
        .find(|s| s.agent == "m")
        .unwrap()
        .duels;
    assert_eq!((duels["base"].win, duels["base"].tie), (0, 10));
}

#[tokio::test]
async fn ctrl_c_ends_the_wait_before_the_next_attempt() {
    let store = temp_store();
    let interrupt = Interrupt::new();
    let raised = interrupt.clone();
    let (model, _) = scripted(move |_, _| {
        raised.raise();
        let retry_after = Some(std::time::Duration::from_secs(3600));
        Err(ChatError::RateLimited { retry_after })
    });
    let judge = Judge::new(model.clone(), true, interrupt);
    let (_, counts) = store.judge(&store.evaluation(), &judge, None).await;
    assert_eq!((counts.judged, model.calls.load(Ordering::SeqCst)), (0, 1));
    assert!(
        counts
            .failures
            .keys()
            .all(|text| text.contains("interrupted")),
        "{counts:?}"
    );
}

#[tokio::test]
async fn an_outage_is_not_retried_and_is_counted_by_its_kind() {
    let store = temp_store();
    let (model, judge) = scripted(|_, _| Err(ChatError::Outage("the journal is away".to_owned())));
    let (_, counts) = store.judge(&store.evaluation(), &judge, None).await;
    assert_eq!((counts.judged, model.calls.load(Ordering::SeqCst)), (0, 20));
    assert_eq!(counts.failures, [("outage".to_owned(), 20)].into());
}

#[tokio::test]
async fn verdicts_are_kept_unless_the_judge_changes() {
    let store = temp_store();
    let evaluation = store.evaluation();
    let (model, judge) = scripted(|_, _| Ok("VERDICT: PASS".into()));
    let (judged, _) = store.judge(&evaluation, &judge, None).await;
    let (again, counts) = store.judge(&judged, &judge, None).await;
    assert_eq!((again, counts.judged), (judged.clone(), 20));
    assert_eq!(model.calls.load(Ordering::SeqCst), 20);
    let blind = Judge::new(model.clone(), false, Interrupt::new());
    store.judge(&judged, &blind, None).await;
    assert_eq!(
        model.calls.load(Ordering::SeqCst),
        40,
        "a judge with other prompts is another judge"
    );
}

#[tokio::test]
async fn attempts_that_did_not_run_are_not_judged() {
    let store = temp_store();
    let mut one = store.attempt("m", 1, "x");
    one.outcome = Outcome::Infrastructure {
        failure: "sandbox".into(),
    };
    one.scores = Scores::default();
    let evaluation = Evaluation::new(fingerprint(&[("m", AgentKind::Model)]), vec![one]);
    let (model, judge) = scripted(|_, _| Ok("VERDICT: PASS".into()));
    let (judged, counts) = store.judge(&evaluation, &judge, None).await;
    assert_eq!(
        (judged, counts, model.calls.load(Ordering::SeqCst)),
        (evaluation, JudgeCounts::default(), 0)
    );
}
