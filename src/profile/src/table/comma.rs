//! Numbers with a decimal comma: `1.018,64`, `1 018,64`.

/// Signs between groups of three digits: point, space, no-break space, narrow no-break space.
const THOUSANDS: [char; 4] = ['.', ' ', '\u{a0}', '\u{202f}'];

/// Whole numbers of more digits are not exact; pandas keeps some of them as text.
const MAX_WHOLE: usize = 15;

/// The sign between thousands (`Some(None)` for no sign) if all texts are numbers with a decimal comma, and at least one
/// of them can be nothing else.
pub(super) fn decimal_comma(texts: &[&str]) -> Option<Option<char>> {
    let (mut thousands, mut proven) = (None, false);
    for text in texts {
        let number = CommaNumber::parse(text)?;
        if number.thousands.is_some() {
            if thousands.is_some() && thousands != number.thousands {
                return None;
            }
            thousands = number.thousands;
        }
        proven |= number.is_proof();
    }
    proven.then_some(thousands)
}

/// A number as German and French texts write it.
struct CommaNumber<'a> {
    thousands: Option<char>,
    whole: &'a str,
    /// The digits after the comma.
    decimals: Option<&'a str>,
}

impl<'a> CommaNumber<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, decimals) = match unsigned.split_once(',') {
            Some((whole, decimals)) => (whole, Some(decimals)),
            None => (unsigned, None),
        };
        let thousands = whole.chars().find(|c| THOUSANDS.contains(c));
        let valid = match thousands {
            None => digits(whole),
            Some(sign) => {
                let mut groups = whole.split(sign);
                let first = groups.next().unwrap_or_default();
                first.len() <= 3 && digits(first) && groups.all(|g| g.len() == 3 && digits(g))
            }
        };
        let exact = whole.bytes().filter(u8::is_ascii_digit).count() <= MAX_WHOLE;
        (valid && exact && decimals.is_none_or(digits)).then_some(Self {
            thousands,
            whole,
            decimals,
        })
    }

    /// Whether the comma cannot separate thousands, as it does in English: `1.018,64`, `0,5`, `1018,640`.
    fn is_proof(&self) -> bool {
        self.decimals.is_some_and(|decimals| {
            self.thousands.is_some()
                || decimals.len() != 3
                || self.whole.len() > 3
                || self.whole.starts_with('0')
        })
    }
}
