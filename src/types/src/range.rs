//! The range of a number, as the JSON Schema of its type states it.

use serde_json::Value;

/// How a number violates the range in its schema, for example `must be at least 1`; `None` if it does not.
pub fn range_violation(schema: &Value, number: f64) -> Option<String> {
    let bound = |key: &str| schema[key].as_f64();
    if !number.is_finite() {
        Some("must be a finite number".to_owned())
    } else if let Some(least) = bound("minimum").filter(|least| number < *least) {
        Some(format!("must be at least {least}"))
    } else if let Some(below) = bound("exclusiveMinimum").filter(|below| number <= *below) {
        Some(format!("must be above {below}"))
    } else if let Some(most) = bound("maximum").filter(|most| number > *most) {
        Some(format!("must be at most {most}"))
    } else {
        let above = bound("exclusiveMaximum").filter(|above| number >= *above);
        above.map(|above| format!("must be below {above}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_bound_is_checked() {
        let closed = json!({"minimum": 1, "maximum": 2.5});
        let open = json!({"exclusiveMinimum": 0, "exclusiveMaximum": 1});
        for (schema, number, expected) in [
            (&closed, 1.0, None),
            (&closed, 2.5, None),
            (&closed, 0.5, Some("must be at least 1")),
            (&closed, 3.0, Some("must be at most 2.5")),
            (&open, 0.5, None),
            (&open, 0.0, Some("must be above 0")),
            (&open, 1.0, Some("must be below 1")),
            (&json!({}), f64::MAX, None),
            (&json!({}), f64::NAN, Some("must be a finite number")),
        ] {
            assert_eq!(range_violation(schema, number).as_deref(), expected);
        }
    }
}
