use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use pybench::llm::{Price, Reply};
use pybench::trajectory::{End, OutputFile, Trajectory, Usage};

use super::*;
use crate::eval::record::tests::{attempt, frozen};
use crate::eval::record::{AgentKind, Outcome, Scores};
use crate::eval::stats::{Measure, summarise};

type Say = dyn Fn(&str, usize) -> Result<String, TeacherError> + Send + Sync;

/// A judge that answers by a function of the prompt and the number of pictures.
struct Scripted {
    say: Box<Say>,
    calls: AtomicUsize,
}

#[async_trait]
impl Teacher for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(Reply {
            content: (self.say)(&request.messages[0].content, request.pictures.len())?,
            usage: Usage::default(),
            truncated: false,
            fault: None,
        })
    }
}

fn scripted(
    say: impl Fn(&str, usize) -> Result<String, TeacherError> + Send + Sync + 'static,
) -> (Arc<Scripted>, Judge) {
    let teacher = Arc::new(Scripted {
        say: Box::new(say),
        calls: AtomicUsize::new(0),
    });
    (teacher.clone(), Judge::new(teacher, true))
}

struct Place(tempfile::TempDir);

impl Place {
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
            frozen(&[("m", AgentKind::Model), ("base", AgentKind::Model)]),
            attempts,
        )
    }

    async fn judge(
        &self,
        evaluation: &Evaluation,
        by: &Judge,
        against: Option<&str>,
    ) -> (Evaluation, Asked) {
        let options = JudgeOptions {
            against: against.map(str::to_owned),
            concurrency: 3,
        };
        judge(evaluation, &[self.0.path().to_owned()], by, &options).await
    }
}

fn place() -> Place {
    Place(tempfile::tempdir().unwrap())
}

/// Everything but the judge's opinion.
fn without(evaluation: &Evaluation) -> Evaluation {
    let mut plain = evaluation.clone();
    plain.attempts.iter_mut().for_each(|a| a.judgement = None);
    plain
}

#[test]
fn verdicts_stand_alone_on_the_last_line() {
    for (reply, said) in [
        ("Because.\nVERDICT: PASS", Some("PASS")),
        ("**Verdict: fail.**\n", Some("FAIL")),
        ("VERDICT: PASS\nBut I doubt it.", None),
        ("VERDICT: PASS or FAIL", Some("PASS OR FAIL")),
        ("PASS", None),
        ("", None),
    ] {
        assert_eq!(verdict(reply).as_deref(), said, "{reply}");
    }
}

#[tokio::test]
async fn a_judge_sees_request_steps_files_and_pictures() {
    let place = place();
    let (_, by) = scripted(|prompt, pictures| {
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
        frozen(&[("m", AgentKind::Model)]),
        vec![place.attempt("m", 1, "good answer")],
    );
    let (judged, asked) = place.judge(&evaluation, &by, None).await;
    assert_eq!(
        (asked.judged, asked.abstained, asked.failures.len()),
        (1, 0, 0)
    );
    let judgement = judged.attempts[0].judgement.clone().unwrap();
    assert_eq!(
        (judgement.passed, judgement.reason.as_str()),
        (Some(true), "Fine.\nVERDICT: PASS")
    );
    assert_eq!(without(&judged), evaluation);
}

#[tokio::test]
async fn a_judge_that_is_down_changes_no_rate_and_is_left_alone() {
    let place = place();
    let evaluation = place.evaluation();
    let before = summarise(&evaluation);
    let (teacher, by) = scripted(|_, _| Err(TeacherError::Connection("refused".into())));
    let (judged, asked) = place.judge(&evaluation, &by, Some("base")).await;
    assert_eq!(judged, evaluation);
    assert_eq!(summarise(&judged), before);
    assert_eq!(asked.failures["connection"], 20);
    assert!(
        teacher.calls.load(Ordering::SeqCst) <= 8,
        "it is not asked for ever"
    );
}

#[tokio::test]
async fn abstentions_are_missing_and_other_rates_stay() {
    let place = place();
    let evaluation = place.evaluation();
    let (_, by) = scripted(|prompt, _| {
        Ok(if prompt.contains("good") {
            "VERDICT: PASS".into()
        } else {
            "I cannot say.".into()
        })
    });
    let (judged, asked) = place.judge(&evaluation, &by, None).await;
    assert_eq!((asked.judged, asked.abstained), (10, 10));
    assert_eq!(without(&judged), evaluation);
    let summaries = summarise(&judged);
    let of = |agent: &str| summaries.iter().find(|s| s.agent == agent).unwrap();
    assert_eq!(of("m").measure(Measure::Judge).unwrap().overall.rate, 1.0);
    assert!(
        of("base").measure(Measure::Judge).is_none(),
        "no value is no failure"
    );
}

#[tokio::test]
async fn pairs_are_asked_in_both_orders() {
    let place = place();
    let evaluation = place.evaluation();
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
    let (judged, _) = place.judge(&evaluation, &fair, Some("base")).await;
    let duels = summarise(&judged)
        .into_iter()
        .find(|s| s.agent == "m")
        .unwrap()
        .duels;
    assert_eq!((duels["base"].win, duels["base"].lose), (10, 0));
    // One that always prefers what it is shown first says nothing.
    let (_, partial) = scripted(move |prompt, _| {
        Ok(format!(
            "VERDICT: {}",
            if pair(prompt) { "A" } else { "PASS" }
        ))
    });
    let (judged, _) = place.judge(&evaluation, &partial, Some("base")).await;
    let duels = summarise(&judged)
        .into_iter()
        .find(|s| s.agent == "m")
        .unwrap()
        .duels;
    assert_eq!((duels["base"].win, duels["base"].tie), (0, 10));
}

#[tokio::test]
async fn what_is_judged_is_not_asked_again_unless_the_judge_changes() {
    let place = place();
    let evaluation = place.evaluation();
    let (teacher, by) = scripted(|_, _| Ok("VERDICT: PASS".into()));
    let (judged, _) = place.judge(&evaluation, &by, None).await;
    let (again, asked) = place.judge(&judged, &by, None).await;
    assert_eq!((again, asked.judged), (judged.clone(), 20));
    assert_eq!(teacher.calls.load(Ordering::SeqCst), 20);
    let blind = Judge::new(teacher.clone(), false);
    place.judge(&judged, &blind, None).await;
    assert_eq!(
        teacher.calls.load(Ordering::SeqCst),
        40,
        "other prompts are another judge"
    );
}

#[tokio::test]
async fn what_did_not_run_is_not_judged() {
    let place = place();
    let mut one = place.attempt("m", 1, "x");
    one.outcome = Outcome::Infrastructure {
        failure: "sandbox".into(),
    };
    one.scores = Scores::default();
    let evaluation = Evaluation::new(frozen(&[("m", AgentKind::Model)]), vec![one]);
    let (teacher, by) = scripted(|_, _| Ok("VERDICT: PASS".into()));
    let (judged, asked) = place.judge(&evaluation, &by, None).await;
    assert_eq!(
        (judged, asked, teacher.calls.load(Ordering::SeqCst)),
        (evaluation, Asked::default(), 0)
    );
}
