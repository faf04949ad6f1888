//! Formats times for E2B's client.

use std::time::{SystemTime, UNIX_EPOCH};

/// RFC 3339 in UTC, with seconds.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    from_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The same for seconds since 1970.
pub(super) fn from_seconds(seconds: i64) -> String {
    // The last second of the year 9999.
    let seconds = seconds.clamp(0, 253_402_300_799);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day number since 1970 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms"): eras of 400 years that start in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_769_599, "2025-11-21T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(from_seconds(seconds), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_another_implementation(seconds in 0i64..253_402_300_799) {
            let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds.unsigned_abs());
            let date = httpdate::fmt_http_date(time); // Sun, 06 Nov 1994 08:49:37 GMT
            let text = rfc3339(time);
            proptest::prop_assert_eq!(&text[8..10], &date[5..7]);
            proptest::prop_assert_eq!(&text[..4], &date[12..16]);
            proptest::prop_assert_eq!(&text[11..19], &date[17..25]);
        }
    }
}
