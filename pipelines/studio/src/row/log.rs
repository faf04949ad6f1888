//! A sample of a log of inspect_ai as a line of the list.

use pybench_datasets::inspect_log::{LogHead, LogMessage, LogSample};
use pybench_types::trajectory::Role;

use super::{Row, short, text};

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
        .filter(|score| score.passed == Some(false));
    Row {
        id: text(match sample.uuid.is_empty() {
            true => &sample.id,
            false => &sample.uuid,
        }),
        task: text(&format!("{}/{}", head.task, sample.id)),
        origin: text(&head.task),
        teacher: text(&head.model),
        format: "tools".to_owned(),
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
    .with_failed(failed.map(|score| text(&score.name)))
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

fn is_reply(message: &LogMessage) -> bool {
    message.role == Role::Assistant
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A sample with two replies, two calls, images and scores of each kind.
    pub(crate) fn sample() -> LogSample {
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
    }
}
