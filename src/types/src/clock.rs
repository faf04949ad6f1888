//! Times as text.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{DateTime, SecondsFormat};

/// The last second of the year 9999.
const MAX_SECONDS: i64 = 253_402_300_799;

/// The current time in UTC, in RFC 3339 format.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// Formats a time in UTC, in RFC 3339 format with whole seconds.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339_of_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The same for seconds since 1970. Times outside of the years 1970 to 9999 become the nearest one inside.
pub fn rfc3339_of_unix(seconds: i64) -> String {
    let time = DateTime::from_timestamp(seconds.clamp(0, MAX_SECONDS), 0);
    time.unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_formatted() {
        for (seconds, text) in [
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_763_769_599, "2025-11-21T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339_of_unix(seconds), text);
        }
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
    }
}
