//! Recognizes numbers that stand in texts: with a currency sign or a unit (`€ 1.018,64`, `$1,234.50`, `12.5 kg`), or with a decimal
//! comma in a workbook or json, where pandas' option for it does nothing.
//!
//! As for other notations, a column counts only if its own values prove it: `$1,234` may be a thousand or one.

use pybench_types::read_options::NumberNotation;

use super::comma::decimal_comma;

/// Signs and units that stand before or after a number. Longer ones that begin alike come first.
const SIGNS: [&str; 19] = [
    "US$", "€", "$", "£", "¥", "₹", "₩", "₽", "EUR", "USD", "GBP", "CHF", "JPY", "kr", "kWh", "kg",
    "km", "cm", "°C",
];
/// Signs between groups of three digits where the decimal sign is a point.
const THOUSANDS: [char; 5] = [',', '\'', ' ', '\u{a0}', '\u{202f}'];
/// Space, no-break space, narrow no-break space.
const SPACES: [char; 3] = [' ', '\u{a0}', '\u{202f}'];
/// Numbers with more digits are not exact.
const MAX_DIGITS: usize = 15;

/// The notation of a column in which every value has the same currency sign or unit.
pub(super) fn with_currency(texts: &[&str]) -> Option<NumberNotation> {
    let first = texts.first()?;
    let mut signs = SIGNS.into_iter();
    let sign = signs.find(|sign| without_sign(first, sign).is_some())?;
    let numbers: Option<Vec<String>> = texts.iter().map(|text| without_sign(text, sign)).collect();
    notation(texts, &numbers?, Some(sign))
}

/// The notation of a column of numbers with a decimal comma.
pub(super) fn with_comma(texts: &[&str]) -> Option<NumberNotation> {
    decimal_comma(texts)?;
    let numbers: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    notation(texts, &numbers, None)
}

/// How the column `texts` writes its numbers, of which `numbers` has no currency sign.
fn notation(texts: &[&str], numbers: &[String], sign: Option<&str>) -> Option<NumberNotation> {
    let digits = |text: &&String| text.bytes().filter(u8::is_ascii_digit).count();
    if numbers.iter().any(|text| digits(&text) > MAX_DIGITS) {
        return None;
    }
    let bare: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let comma = decimal_comma(&bare);
    let thousands = match comma {
        Some(thousands) => thousands,
        None => decimal_point(&bare)?,
    };
    let occurs = |c: &char| texts.iter().any(|text| text.contains(*c));
    let spaces = SPACES
        .into_iter()
        .filter(|c| Some(*c) != thousands && occurs(c));
    let longest = texts.iter().max_by_key(|text| text.chars().count())?;
    Some(NumberNotation {
        currency: sign.map(str::to_owned),
        ignored: thousands.into_iter().chain(spaces).collect(),
        decimal_comma: comma.is_some(),
        example: (*longest).to_owned(),
    })
}

/// The number beside a currency sign: `-1.018,64` of `-€ 1.018,64`, `€ -1.018,64` and `-1.018,64 €`.
fn without_sign(text: &str, sign: &str) -> Option<String> {
    let minus = text.strip_prefix('-');
    let rest = minus.unwrap_or(text);
    let number = rest
        .strip_prefix(sign)
        .or_else(|| rest.strip_suffix(sign))?;
    let number = number.trim_matches(SPACES);
    let begins = number.strip_prefix('-').unwrap_or(number);
    let is_number = begins.starts_with(|c: char| c.is_ascii_digit());
    let minus = match (minus, number.starts_with('-')) {
        (Some(_), true) => return None,
        (Some(_), false) => "-",
        (None, _) => "",
    };
    is_number.then(|| format!("{minus}{number}"))
}

/// The sign between thousands (`Some(None)` for no sign) if all texts are numbers with a decimal point or none, and either
/// one of them can be nothing else or none has any sign.
fn decimal_point(texts: &[&str]) -> Option<Option<char>> {
    let (mut thousands, mut proven, mut plain) = (None, false, true);
    for text in texts {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, decimals) = match unsigned.split_once('.') {
            Some((whole, decimals)) => (whole, Some(decimals)),
            None => (unsigned, None),
        };
        let sign = whole.chars().find(|c| THOUSANDS.contains(c));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let valid = match sign {
            None => digits(whole),
            Some(sign) => {
                let mut groups = whole.split(sign);
                let first = groups.next().unwrap_or_default();
                first.len() <= 3 && digits(first) && groups.all(|g| g.len() == 3 && digits(g))
            }
        };
        let agrees = sign.is_none() || thousands.is_none() || thousands == sign;
        if !(valid && agrees && decimals.is_none_or(digits)) {
            return None;
        }
        thousands = thousands.or(sign);
        plain &= sign.is_none() && decimals.is_none();
        proven |= decimals.is_some_and(|decimals| {
            sign.is_some() || decimals.len() != 3 || whole.len() > 3 || whole.starts_with('0')
        });
        // A comma may be the decimal sign; an apostrophe is none, and of spaces `decimal_comma` knows.
        proven |= sign == Some('\'');
    }
    (proven || plain).then_some(thousands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Option<Vec<f64>> {
        let notation = with_currency(texts)?;
        let numbers = texts
            .iter()
            .map(|text| notation.plain(text).parse().unwrap());
        Some(numbers.collect())
    }

    #[test]
    fn amounts_are_read_in_the_notation_that_they_prove() {
        for (texts, numbers) in [
            (
                &["€ 1.018,64", "€ 3,00", "-€ 2,50"][..],
                &[1018.64, 3.0, -2.5][..],
            ),
            (&["$1,234.50", "$1,018", "$7"], &[1234.5, 1018.0, 7.0]),
            (&["1 234,50 €", "3,00 €", "-7,25 €"], &[1234.5, 3.0, -7.25]),
            (&["1\u{202f}234,50\u{a0}€", "0,5\u{a0}€"], &[1234.5, 0.5]),
            (&["CHF 1'018.64", "CHF -3.10"], &[1018.64, -3.1]),
            (&["£5", "£12"], &[5.0, 12.0]),
            (&["12 EUR", "1.5 EUR"], &[12.0, 1.5]),
            (&["12,5 kg", "-3,25 kg"], &[12.5, -3.25]),
            (&["3.5 °C", "-12 °C"], &[3.5, -12.0]),
        ] {
            assert_eq!(read(texts).as_deref(), Some(numbers), "{texts:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_or_not_at_all_stays_text() {
        for texts in [
            &["$1,234", "$12,500"][..],
            &["€ 1.018", "€ 2.500"],
            &["€ 1.018,64", "$3.00"],
            &["€ 1,50", "€ 1.50"],
            &["€ 1,50", "free"],
            &["€ 1,50", "2,50"],
            &["--$5"],
            &["-$-5"],
            &["$"],
            &["$1,23,456.00"],
            &["$1234567890123456"],
            &["1,50"],
            &[],
        ] {
            assert_eq!(with_currency(texts), None, "{texts:?}");
        }
    }

    #[test]
    fn a_decimal_comma_needs_no_currency() {
        let notation = with_comma(&["1.018,64", "12"]).unwrap();
        assert_eq!(notation.plain("1.018,64"), "1018.64");
        assert_eq!((notation.currency, &*notation.example), (None, "1.018,64"));
        assert_eq!(with_comma(&["1.018", "12.5"]), None);
    }
}
