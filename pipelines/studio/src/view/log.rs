//! The page of a sample of a log of inspect_ai.

use std::collections::HashMap;

use pybench_datasets::inspect_log::{LogHead, LogMessage, LogSample};
use pybench_types::trajectory::Role;

use super::{CellView, CheckView, EvaluationView, IMAGES, OutputView, ScoreView, TurnView, View};
use crate::row::{Row, log_query, short};

/// The page of a sample.
pub(super) fn view(row: Row, head: &LogHead, sample: &LogSample) -> View {
    View {
        row,
        system: system(sample),
        query: log_query(sample).to_owned(),
        turns: turns(sample),
        evaluation: Some(evaluation(head, sample)),
        ..View::default()
    }
}

/// The system prompt.
fn system(sample: &LogSample) -> String {
    let system = sample
        .messages
        .iter()
        .find(|message| message.role == Role::System);
    system.map_or_else(String::new, |message| message.text.clone())
}

/// What the log recorded besides the conversation.
fn evaluation(head: &LogHead, sample: &LogSample) -> EvaluationView {
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
fn turns(sample: &LogSample) -> Vec<TurnView> {
    let query = log_query(sample);
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
    match parts
        .and_then(|(mime, base64)| Some((IMAGES.into_iter().find(|known| *known == mime)?, base64)))
    {
        Some((mime, base64)) => OutputView::Image {
            mime: mime.to_owned(),
            base64: base64.split_whitespace().collect(),
        },
        None => OutputView::Note {
            text: format!("An image that is not shown: {}", short(url)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::log_tests::sample;

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
    fn scores_are_checks_or_notes() {
        let head = LogHead::default();
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
