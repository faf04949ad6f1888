//! Ends replies that repeat themselves: vLLM's parameter `repetition_detection`.

use serde::Deserialize;

use super::error::ApiError;

/// When a reply counts as repeating itself. Field names and meaning are those of vLLM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RepetitionDetection {
    /// Tokens of the longest pattern that is looked for; 0 turns the detection off.
    max_pattern_size: usize,
    /// Tokens of the shortest one; 0 means 1.
    min_pattern_size: usize,
    /// How often the pattern must follow itself at the end of the reply, at least twice.
    min_count: usize,
}

impl RepetitionDetection {
    /// Checks the values of a request. `None` if the detection is off.
    pub(super) fn validate(self) -> Result<Option<Self>, ApiError> {
        if self.max_pattern_size == 0 {
            return Ok(None);
        }
        if self.min_count < 2 || self.min_pattern_size > self.max_pattern_size {
            let text = "repetition_detection: min_count must be at least 2, and min_pattern_size at most \
                        max_pattern_size";
            return Err(ApiError::bad(Some("repetition_detection"), text));
        }
        Ok(Some(self))
    }

    /// Whether `tokens` end with a pattern that occurs `min_count` times in a row.
    pub(super) fn matches(&self, tokens: &[u32]) -> bool {
        (self.min_pattern_size.max(1)..=self.max_pattern_size)
            .take_while(|size| size.saturating_mul(self.min_count) <= tokens.len())
            .any(|size| {
                let tail = &tokens[tokens.len() - size * self.min_count..];
                // A sequence has the period `size` if it equals itself shifted by that much.
                tail[size..] == tail[..tail.len() - size]
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detection(max: usize, min: usize, count: usize) -> RepetitionDetection {
        RepetitionDetection {
            max_pattern_size: max,
            min_pattern_size: min,
            min_count: count,
        }
    }

    #[test]
    fn only_repetitions_at_the_end_count() {
        let twice = detection(2, 0, 2);
        assert!(twice.matches(&[5, 7, 7]));
        assert!(twice.matches(&[1, 2, 1, 2]));
        assert!(!twice.matches(&[7, 7, 5]));
        assert!(!twice.matches(&[1, 2, 3, 1, 2, 3]));
        assert!(!twice.matches(&[7]));
        assert!(!detection(3, 2, 2).matches(&[1, 7, 7]));
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(detection(0, 0, 0).validate().unwrap(), None);
        assert!(detection(4, 0, 1).validate().is_err());
        assert!(detection(4, 5, 2).validate().is_err());
        assert!(detection(4, 1, 2).validate().unwrap().is_some());
    }

    proptest! {
        /// Compared with the definition: some pattern, written `count` times, is the end.
        #[test]
        fn it_is_what_the_definition_says(
            tokens in prop::collection::vec(0_u32..3, 0..24),
            max in 1_usize..6,
            min in 0_usize..4,
            count in 2_usize..5,
        ) {
            let defined = (min.max(1)..=max).any(|size| {
                tokens.len() >= size * count
                    && tokens.ends_with(&tokens[tokens.len() - size..].repeat(count))
            });
            prop_assert_eq!(detection(max, min, count).matches(&tokens), defined);
        }
    }
}
