//! Python's literals, as `ast.literal_eval` reads them: numbers, texts, lists, tuples and dictionaries.

use super::python_number::float_with_underscores;

/// Brackets within brackets that are read.
const MAX_DEPTH: usize = 50;

/// A value. Sets, bytes and complex numbers are not read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    None,
    Bool(bool),
    /// In canonical digits.
    Int(String),
    Float(f64),
    Str(String),
    /// A list or a tuple.
    Sequence(Vec<Literal>),
    Dict(Vec<(Literal, Literal)>),
}

impl Literal {
    /// Reads a text that is one literal.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser {
            rest: text.trim_start_matches([' ', '\t']),
        };
        let value = parser.tuple(0, "")?;
        parser.space();
        parser.rest.is_empty().then_some(value)
    }

    /// Python's `str` of a value that is not in brackets.
    pub(super) fn str(&self) -> Option<String> {
        Some(match self {
            Self::None => "None".to_owned(),
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Int(digits) => digits.clone(),
            Self::Float(number) => float_repr(*number),
            Self::Str(text) => text.clone(),
            Self::Sequence(_) | Self::Dict(_) => return None,
        })
    }

    /// The value of an integer or a float.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(digits) => digits.parse().ok(),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }
}

/// Python's `repr` of a float.
pub(super) fn float_repr(number: f64) -> String {
    if !number.is_finite() {
        return format!("{number}").to_lowercase();
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        return format!("{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Skips white space and comments.
    fn space(&mut self) {
        loop {
            self.rest = self
                .rest
                .trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest),
                None => return,
            }
        }
    }

    fn takes(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// One value, or several separated by commas, up to `end`, which is read; at the top level it is empty.
    fn tuple(&mut self, depth: usize, end: &str) -> Option<Literal> {
        let first = self.value(depth)?;
        self.space();
        if !self.takes(",") {
            return self.takes(end).then_some(first);
        }
        let mut items = vec![first];
        loop {
            self.space();
            if self.rest.is_empty() && end.is_empty() || !end.is_empty() && self.takes(end) {
                return Some(Literal::Sequence(items));
            }
            items.push(self.value(depth)?);
            if !self.takes(",") {
                return self.takes(end).then_some(Literal::Sequence(items));
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Literal> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        match self.rest.chars().next()? {
            '(' => {
                self.takes("(");
                if self.takes(")") {
                    return Some(Literal::Sequence(Vec::new()));
                }
                self.tuple(depth + 1, ")")
            }
            '[' => self.list(depth),
            '{' => self.dict(depth),
            '+' | '-' | '.' | '0'..='9' => self.number(),
            _ => self.word(),
        }
    }

    fn list(&mut self, depth: usize) -> Option<Literal> {
        self.takes("[");
        let mut items = Vec::new();
        while !self.takes("]") {
            items.push(self.value(depth + 1)?);
            if !self.takes(",") {
                return self.takes("]").then_some(Literal::Sequence(items));
            }
        }
        Some(Literal::Sequence(items))
    }

    fn dict(&mut self, depth: usize) -> Option<Literal> {
        self.takes("{");
        let mut items = Vec::new();
        while !self.takes("}") {
            let key = self.value(depth + 1)?;
            if !self.takes(":") {
                return None;
            }
            items.push((key, self.value(depth + 1)?));
            if !self.takes(",") {
                return self.takes("}").then_some(Literal::Dict(items));
            }
        }
        Some(Literal::Dict(items))
    }

    /// A number with at most one sign.
    fn number(&mut self) -> Option<Literal> {
        let negative = self.takes("-");
        if !negative {
            self.takes("+");
        }
        self.space();
        let end = self.number_end();
        let text = &self.rest[..end];
        self.rest = &self.rest[end..];
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
        let value = float_with_underscores(text)?;
        let sign = if negative { -1.0 } else { 1.0 };
        if !plain {
            return Some(Literal::Float(sign * value));
        }
        let digits = text.replace('_', "");
        let zero = digits.bytes().all(|b| b == b'0');
        match (digits.starts_with('0'), zero) {
            (_, true) => Some(Literal::Int("0".to_owned())),
            (true, false) => None,
            (false, false) if negative => Some(Literal::Int(format!("-{digits}"))),
            (false, false) => Some(Literal::Int(digits)),
        }
    }

    /// Length of the number that the rest starts with.
    fn number_end(&self) -> usize {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let exponent = end > 0 && matches!(bytes[end - 1], b'e' | b'E');
            match byte {
                b'0'..=b'9' | b'.' | b'_' | b'e' | b'E' => end += 1,
                b'+' | b'-' if exponent => end += 1,
                _ => break,
            }
        }
        end
    }

    /// A name, or one or several texts after one another.
    fn word(&mut self) -> Option<Literal> {
        for (name, value) in [
            ("True", Literal::Bool(true)),
            ("False", Literal::Bool(false)),
            ("None", Literal::None),
        ] {
            if let Some(rest) = self.rest.strip_prefix(name) {
                self.rest = rest;
                let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
                return ends.then_some(value);
            }
        }
        let mut text = self.text()?;
        loop {
            self.space();
            if !self.rest.starts_with(['\'', '"', 'r', 'R', 'u', 'U']) {
                return Some(Literal::Str(text));
            }
            text += &self.text()?;
        }
    }

    fn text(&mut self) -> Option<String> {
        let raw = self.rest.starts_with(['r', 'R']);
        let rest = self.rest.strip_prefix(['r', 'R', 'u', 'U']);
        self.rest = rest.unwrap_or(self.rest);
        let quotes = ["'''", "\"\"\"", "'", "\""];
        let quote = quotes.into_iter().find(|q| self.rest.starts_with(q))?;
        self.rest = &self.rest[quote.len()..];
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(quote) {
                self.rest = rest;
                return Some(text);
            }
            let c = self.rest.chars().next()?;
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '\n' if quote.len() == 1 => return None,
                '\\' if raw => {
                    let next = self.rest.chars().next()?;
                    self.rest = &self.rest[next.len_utf8()..];
                    text.extend([c, next]);
                }
                '\\' => text.push_str(&self.escape()?),
                c => text.push(c),
            }
        }
    }

    /// What stands after a backslash. Names of characters are not read.
    fn escape(&mut self) -> Option<String> {
        let c = self.rest.chars().next()?;
        let code = |digits: &str, radix| {
            let code = u32::from_str_radix(digits, radix).ok()?;
            Some(char::from_u32(code)?.to_string())
        };
        let (length, text) = match c {
            '\n' => (1, String::new()),
            '\\' | '\'' | '"' => (1, c.to_string()),
            'n' => (1, "\n".to_owned()),
            't' => (1, "\t".to_owned()),
            'r' => (1, "\r".to_owned()),
            'a' => (1, "\u{7}".to_owned()),
            'b' => (1, "\u{8}".to_owned()),
            'f' => (1, "\u{c}".to_owned()),
            'v' => (1, "\u{b}".to_owned()),
            '0'..='7' => {
                let octal = |c: &char| ('0'..='7').contains(c);
                let digits: String = self.rest.chars().take(3).take_while(octal).collect();
                (digits.len(), code(&digits, 8)?)
            }
            'x' | 'u' | 'U' => {
                let length = match c {
                    'x' => 3,
                    'u' => 5,
                    _ => 9,
                };
                (length, code(self.rest.get(1..length)?, 16)?)
            }
            'N' => return None,
            other => (other.len_utf8(), format!("\\{other}")),
        };
        self.rest = &self.rest[length..];
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_as_python_does() {
        for (text, expected) in [
            ("12", Some("12")),
            ("-0", Some("0")),
            ("007", None),
            ("00", Some("0")),
            ("1_000", Some("1000")),
            ("(161.25)", Some("161.25")),
            ("1.6125e2  # units", Some("161.25")),
            ("- 5.", Some("-5.0")),
            ("1e16", Some("1e+16")),
            ("1e-5", Some("1e-05")),
            ("0.0001", Some("0.0001")),
            ("'a' \"b\"", Some("ab")),
            (r"'it\'s\x21'", Some("it's!")),
            (r"r'\n'", Some("\\n")),
            ("'''a\nb'''", Some("a\nb")),
            ("'a\nb'", None),
            ("True", Some("True")),
            ("Trueish", None),
            ("abc", None),
            ("", None),
            ("1 2", None),
            ("é", None),
        ] {
            let found = Literal::parse(text).and_then(|value| value.str());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
        let sequence = |text: &str| match Literal::parse(text) {
            Some(Literal::Sequence(items)) => Some(items.len()),
            _ => None,
        };
        for (text, count) in [
            ("1, 2", Some(2)),
            ("(1,)", Some(1)),
            ("()", Some(0)),
            ("[1, [2],]", Some(2)),
            ("[,]", None),
            ("[1", None),
            ("(1, 2))", None),
        ] {
            assert_eq!(sequence(text), count, "{text}");
        }
        let dict = Literal::parse("{'T': 1, 'A': (2)}");
        let pair = |key: &str, value: &str| (Literal::Str(key.into()), Literal::Int(value.into()));
        assert_eq!(
            dict,
            Some(Literal::Dict(vec![pair("T", "1"), pair("A", "2")]))
        );
        assert_eq!(Literal::parse(&"[".repeat(100_000)), None);
    }

    #[test]
    fn fuzz_literals() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Literal::parse(&String::from_utf8_lossy(bytes)).map(|value| value.str());
        });
    }
}
