//! Reads fields of replies that deviate from the protocol, if their meaning is unambiguous. A paid reply is not lost
//! because an endpoint writes a number as text.

use serde_json::Value;

use pybench_types::trajectory::Usage;

/// Largest number below which every integer has an exact floating point number.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Types of the parts of a content that are text, and of those that are not part of the reply.
const TEXT_PARTS: [&str; 2] = ["text", "output_text"];
const SKIPPED_PARTS: [&str; 3] = ["thinking", "reasoning", "redacted_thinking"];

/// The token counts of a chat completion; zero, which means not counted, unless both can be read.
pub(super) fn chat_usage(usage: &Value) -> Usage {
    let counts = (
        count(&usage["prompt_tokens"]),
        count(&usage["completion_tokens"]),
    );
    match counts {
        (Some(prompt_tokens), Some(completion_tokens)) => Usage {
            prompt_tokens,
            completion_tokens,
        },
        _ => Usage::default(),
    }
}

/// A count: an integer, also as text (`"100"`) or as a floating point number (`100.0`).
pub(super) fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn whole(number: f64) -> Option<u64> {
    let exact = number.fract() == 0.0 && (0.0..MAX_EXACT).contains(&number);
    exact.then_some(number as u64)
}

/// The text of a message: a string or a list of text parts. The inner option is `None` if there is no content, the
/// outer one if the content is not text.
pub(super) fn text(content: Value) -> Option<Option<String>> {
    match content {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text)),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(part).collect();
            Some((!parts.is_empty()).then_some(texts?.concat()))
        }
        _ => None,
    }
}

/// The text of a part: empty for reasoning, `None` if it is not text.
fn part(part: &Value) -> Option<&str> {
    let kind = match part.get("type") {
        None => "text",
        Some(kind) => kind.as_str()?,
    };
    if SKIPPED_PARTS.contains(&kind) {
        return Some("");
    }
    let text = part.as_str().or_else(|| part.get("text")?.as_str());
    text.filter(|_| TEXT_PARTS.contains(&kind))
}

/// The arguments of a tool call as JSON text. An object is written as text; `null` means that there are none.
pub(super) fn arguments(arguments: Value) -> String {
    match arguments {
        Value::String(text) => text,
        Value::Null => "{}".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_numbers_in_any_notation() {
        for (value, expected) in [
            (json!(100), Some(100)),
            (json!(100.0), Some(100)),
            (json!(1e2), Some(100)),
            (json!("100"), Some(100)),
            (json!(" 100 "), Some(100)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(1e300), None),
            (json!(1.5), None),
            (json!(-1), None),
            (json!("-1"), None),
            (json!("many"), None),
            (json!(""), None),
            (json!(true), None),
            (json!(null), None),
            (json!([100]), None),
        ] {
            assert_eq!(count(&value), expected, "{value}");
        }
    }

    #[test]
    fn usage_without_both_counts_is_no_usage() {
        let whole = json!({"prompt_tokens": "7", "completion_tokens": 2.0});
        assert_eq!(chat_usage(&whole).total(), 9);
        for usage in [
            json!(null),
            json!([1, 2]),
            json!(5),
            json!({}),
            json!({"prompt_tokens": 7}),
            json!({"prompt_tokens": 7, "completion_tokens": null}),
            json!({"prompt_tokens": null, "completion_tokens": 2}),
        ] {
            assert_eq!(chat_usage(&usage), Usage::default(), "{usage}");
        }
    }

    #[test]
    fn contents_are_text_or_text_parts() {
        let some = |text: &str| Some(Some(text.to_owned()));
        for (content, expected) in [
            (json!("a"), some("a")),
            (json!(""), some("")),
            (json!(null), Some(None)),
            (json!([]), Some(None)),
            (json!(["a", "b"]), some("ab")),
            (
                json!([{"type": "text", "text": "a"}, {"text": "b"}]),
                some("ab"),
            ),
            (json!([{"type": "output_text", "text": "a"}]), some("a")),
            (
                json!([{"type": "thinking", "thinking": [1]}, {"type": "text", "text": "a"}]),
                some("a"),
            ),
            (json!([{"type": "image_url", "text": "a"}]), None),
            (json!([{"type": "text", "text": 5}]), None),
            (json!([5]), None),
            (json!({"text": "a"}), None),
            (json!(5), None),
        ] {
            assert_eq!(text(content.clone()), expected, "{content}");
        }
    }

    #[test]
    fn fuzz_any_value_is_read_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
                let _ = (chat_usage(&value), count(&value), text(value.clone()));
                let _ = arguments(value);
            }
        });
    }
}
