//! Digests of observations, as rows carry them.

use pybench_types::id::Digest;
use pybench_types::observation::Observation;

/// Digest of a cell's complete observation. Texts are scrubbed and then normalized by
/// [`normalize::text`](crate::normalize::text).
pub fn observed(observation: &Observation) -> Digest {
    let mut value = serde_json::to_value(observation).unwrap_or_default();
    normalize_strings(&mut value, false);
    Digest::of_json(&value)
}

/// Scrub and normalize all strings, except those under an image type.
fn normalize_strings(value: &mut serde_json::Value, image: bool) {
    use serde_json::Value;
    match value {
        Value::String(text) if !image => {
            *text = crate::normalize::text(&crate::scrub::text(text).text);
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| normalize_strings(item, image)),
        Value::Object(map) => {
            for (key, item) in map {
                let image = key.starts_with("image/") && key != "image/svg+xml";
                normalize_strings(item, image);
            }
        }
        _ => {}
    }
}
