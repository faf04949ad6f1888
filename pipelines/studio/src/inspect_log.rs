//! Samples of logs of inspect_ai: their line in the list, and their page.

use std::collections::HashMap;

use pybench_datasets::inspect_log::{LogHead, LogMessage, LogSample};
use pybench_types::trajectory::Role;

use crate::row::{Row, short, text};
use crate::view::{
    CellView, CheckView, EvaluationView, OutputView, ScoreView, TurnView, image_type,
};

/// The scores that have a column of their own. Any other score of a log is the official one of its suite.
const SCORES: [&str; 3] = ["upstream", "fixed", "strict"];

/// The line of a sample in the list.
pub(crate) fn row(head: &LogHead, sample: &LogSample) -> Row {
    let replies = sample.messages.iter().filter(|message| is_reply(message));
    let outcome = |passed: Option<bool>| match passed {
        Some(true) => "passed".to_owned(),
        Some(false) => "failed".to_owned(),
        None => String::new(),
    };
    let named = |name: &str| {
        let score = sample.scores.iter().find(|score| score.name == name);
        score.map(|score| outcome(score.passed)).unwrap_or_default()
    };
    let first = sample
        .scores
        .iter()
        .find(|score| !SCORES.contains(&&*score.name));
    let failed = sample
        .scores
        .iter()
        .find(|score| score.passed == Some(false));
    Row {
        id: text(match sample.uuid.is_empty() {
            true => &sample.id,
            false => &sample.uuid,
        }),
        task: text(&format!("{}/{}", head.task, sample.id)),
        origin: text(&head.task),
        teacher: text(&head.model),
        format: "tools".to_owned(),
        rejected_by: failed.map(|score| text(&score.name)).unwrap_or_default(),
        upstream: match named("upstream") {
            none if none.is_empty() => first.map(|score| outcome(score.passed)).unwrap_or_default(),
            upstream => upstream,
        },
        fixed: named("fixed"),
        strict: named("strict"),
        end: match &sample.limit {
            _ if !sample.error.is_empty() => "infrastructure".to_owned(),
            Some(limit) => text(&format!("{} limit", limit.kind)),
            None => "finished".to_owned(),
        },
        turns: replies.count() as u64,
        tokens: sample.tokens_in.saturating_add(sample.tokens_out),
        query: short(query(sample)),
        ..Row::default()
    }
}

/// The last message of the user before the first reply.
pub(crate) fn query(sample: &LogSample) -> &str {
    let before = sample
        .messages
        .iter()
        .take_while(|message| !is_reply(message));
    let query = before.filter(|message| message.role == Role::User).last();
    query.map_or("", |message| &message.text)
}

/// The system prompt.
pub(crate) fn system(sample: &LogSample) -> String {
    let system = sample
        .messages
        .iter()
        .find(|message| message.role == Role::System);
    system.map_or_else(String::new, |message| message.text.clone())
}

/// What the log recorded besides the conversation.
pub(crate) fn evaluation(head: &LogHead, sample: &LogSample) -> EvaluationView {
    let mut notes = Vec::new();
    if !sample.error.is_empty() {
        notes.push(format!("It has no result: {}", sample.error));
    }
    if let Some(limit) = &sample.limit {
        notes.push(format!(
            "It was ended by a limit: {} {}",
            limit.kind, limit.value
        ));
    }
    let (mut scores, mut checks) = (Vec::new(), Vec::new());
    for score in &sample.scores {
        let Some(passed) = score.passed else {
            notes.push(format!(
                "{}: {} {}",
                score.name, score.value, score.explanation
            ));
            continue;
        };
        scores.push(ScoreView {
            score: score.name.clone(),
            passed,
        });
        if !score.explanation.is_empty() || !score.answer.is_empty() {
            checks.push(CheckView {
                score: score.name.clone(),
                name: score.explanation.clone(),
                passed,
                expected: sample.target.clone(),
                found: score.answer.clone(),
            });
        }
    }
    EvaluationView {
        agent: head.model.clone(),
        suite: head.task.clone(),
        task: sample.id.clone(),
        seed: sample.epoch.saturating_sub(1),
        notes,
        scores,
        checks,
        seconds: sample.seconds,
        ..EvaluationView::default()
    }
}

/// The turns of a sample: each call is a cell, and what its tool answered is its output.
pub(crate) fn turns(sample: &LogSample) -> Vec<TurnView> {
    let query = query(sample);
    let (mut asked, mut turns) = (Vec::new(), Vec::<TurnView>::new());
    // Where the answers to calls go, by the id of the call.
    let mut open: HashMap<&str, (usize, usize)> = HashMap::new();
    for message in &sample.messages {
        match message.role {
            Role::System => {}
            Role::Assistant => {
                let cells = message.calls.iter().enumerate().map(|(at, call)| {
                    open.insert(&call.id, (turns.len(), at));
                    CellView {
                        code: Some(call.code()),
                        outputs: Vec::new(),
                    }
                });
                let cells = cells.collect();
                turns.push(TurnView {
                    asked: std::mem::take(&mut asked),
                    text: message.text.clone(),
                    cells,
                    trained: true,
                    ..TurnView::default()
                });
            }
            Role::User | Role::Tool => {
                let place = open.get(&*message.answers).copied();
                match place.filter(|_| message.role == Role::Tool) {
                    Some((turn, cell)) => turns[turn].cells[cell].outputs.extend(outputs(message)),
                    None if turns.is_empty() && message.text == query => {}
                    None => asked.push(asked_text(message)),
                }
            }
        }
    }
    turns
}

/// A message of the user; of images only the number.
fn asked_text(message: &LogMessage) -> String {
    match message.images.len() {
        0 => message.text.clone(),
        images => format!("{}\n[{images} images; the raw data has them]", message.text),
    }
}

fn outputs(message: &LogMessage) -> Vec<OutputView> {
    let mut outputs = Vec::new();
    if !message.text.is_empty() {
        let text = message.text.clone();
        outputs.push(OutputView::Text { text });
    }
    if !message.error.is_empty() {
        let text = message.error.clone();
        outputs.push(OutputView::Error { text });
    }
    outputs.extend(message.images.iter().map(|url| image(url)));
    outputs
}

/// An image of a data URL. Other URLs are named, never loaded.
fn image(url: &str) -> OutputView {
    let parts = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    match parts.and_then(|(mime, base64)| Some((image_type(mime)?, base64))) {
        Some((mime, base64)) => OutputView::Image {
            mime: mime.to_owned(),
            base64: base64.split_whitespace().collect(),
        },
        None => OutputView::Note {
            text: format!("An image that is not shown: {}", short(url)),
        },
    }
}

fn is_reply(message: &LogMessage) -> bool {
    message.role == Role::Assistant
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> LogSample {
        let message = |role: &str, text: &str| json!({"role": role, "text": text});
        let mut reply = message("assistant", "I look.");
        reply["calls"] = json!([
            {"id": "a", "function": "python", "arguments": "{\"code\":\"print(1)\"}"},
            {"id": "b", "function": "python", "arguments": "{\"code\":\"plot()\"}"}]);
        let mut plot = message("tool", "");
        plot["answers"] = json!("b");
        plot["images"] = json!([
            "data:image/png;base64,aGk=",
            "https://evil.example/x.png",
            "data:image/svg+xml;base64,PHN2Zz4=",
            "data:text/html;base64,PHN2Zz4="
        ]);
        let mut number = message("tool", "1");
        number["answers"] = json!("a");
        number["error"] = json!("slow");
        let mut stray = message("tool", "late");
        stray["answers"] = json!("nothing");
        let score = |name: &str, value: &str, passed| {
            json!({
            "name": name, "value": value, "passed": passed, "answer": "1", "explanation": ""})
        };
        serde_json::from_value(json!({
            "id": "7", "epoch": 2, "uuid": "u", "target": "2", "error": "", "limit": {"type": "turn", "limit": 3.0}, "seconds": 1.5,
            "tokens_in": 5, "tokens_out": 2,
            "messages": [message("system", "Be brief."), message("user", "Files."), message("user", "Add."), reply, plot, number,
                stray, message("assistant", "One.")],
            "scores": [score("match", "I", Some(false)), score("strict", "C", Some(true)), score("share", "0.5", None)],
        }))
        .unwrap()
    }

    #[test]
    fn calls_are_cells_with_the_answers_to_them() {
        let turns = turns(&sample());
        assert_eq!(turns.len(), 2);
        assert_eq!(turns[0].asked, ["Files."]);
        let [first, second] = &turns[0].cells[..] else {
            panic!("{turns:?}")
        };
        assert_eq!(first.code.as_deref(), Some("print(1)"));
        let text = |text: &str| text.to_owned();
        assert_eq!(
            first.outputs,
            [
                OutputView::Text { text: text("1") },
                OutputView::Error { text: text("slow") },
            ]
        );
        assert_eq!(
            second.outputs[0],
            OutputView::Image {
                mime: text("image/png"),
                base64: text("aGk="),
            }
        );
        // No other type, and nothing that a page would load.
        assert_eq!(second.outputs.len(), 4);
        assert!(
            second.outputs[1..]
                .iter()
                .all(|output| matches!(output, OutputView::Note { .. }))
        );
        assert_eq!((&*turns[1].asked[0], &*turns[1].text), ("late", "One."));
    }

    #[test]
    fn a_line_has_the_scores_of_the_log() {
        let head = LogHead {
            task: "sums".to_owned(),
            model: "m/1".to_owned(),
            ..LogHead::default()
        };
        let row = row(&head, &sample());
        assert_eq!(
            (&*row.task, &*row.teacher, &*row.query),
            ("sums/7", "m/1", "Add.")
        );
        assert_eq!(
            (&*row.upstream, &*row.fixed, &*row.strict),
            ("failed", "", "passed")
        );
        assert_eq!((&*row.rejected_by, &*row.end), ("match", "turn limit"));
        assert_eq!((row.turns, row.tokens), (2, 7));
        let view = evaluation(&head, &sample());
        assert_eq!(view.scores.len(), 2);
        assert_eq!(
            (&*view.checks[0].expected, &*view.checks[0].found),
            ("2", "1")
        );
        assert!(
            view.notes.iter().any(|note| note.starts_with("share: 0.5")),
            "{:?}",
            view.notes
        );
    }
}
