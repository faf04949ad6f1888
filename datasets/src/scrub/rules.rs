//! What secrets and persons look like.

use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet};
use serde::{Deserialize, Serialize};

use super::Found;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A key or token of a service, by its form.
    Key,
    /// A private key.
    PrivateKey,
    /// A password, in a URL or assigned to a name that says so.
    Password,
    /// A mail address.
    Mail,
    /// The name of a user, in a path or a prompt.
    User,
    /// A path of the machine.
    Path,
    /// The name of a machine.
    Host,
}

impl Kind {
    /// What stands in its place.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Key => "[KEY]",
            Self::PrivateKey => "[PRIVATE KEY]",
            Self::Password => "[PASSWORD]",
            Self::Mail => "[MAIL]",
            Self::User => "[USER]",
            Self::Path => "[PATH]",
            Self::Host => "[HOST]",
        }
    }
}

/// A rule replaces its group `s`, or all of a match without one. `telling`: only values that do not
/// read like words.
struct Rule {
    kind: Kind,
    pattern: &'static str,
    telling: bool,
}

const fn rule(kind: Kind, pattern: &'static str) -> Rule {
    Rule {
        kind,
        pattern,
        telling: false,
    }
}

const fn telling(kind: Kind, pattern: &'static str) -> Rule {
    Rule {
        kind,
        pattern,
        telling: true,
    }
}

/// In this order. Long matches are without a bound, since a large count compiles to as many states and
/// matching is linear anyway. Mail addresses end in a top-level domain that people use, since `A@B.dot` is Python.
const RULES: [Rule; 27] = [
    rule(
        Kind::PrivateKey,
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,.-]*?-----END [A-Z ]{0,40}PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)",
    ),
    rule(Kind::Key, r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b"),
    telling(
        Kind::Key,
        r#"(?i)aws.{0,20}?(?:secret|key)[^\n=:]{0,20}[=:]\s{0,4}["']?(?P<s>[A-Za-z0-9/+=]{40})"#,
    ),
    telling(
        Kind::Key,
        r"\bsk-(?:[a-z]{2,10}[0-9]{0,2}-)?[A-Za-z0-9_-]{20,400}",
    ),
    rule(Kind::Key, r"\bhf_[A-Za-z0-9]{30,60}\b"),
    rule(Kind::Key, r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    rule(Kind::Key, r"\bgithub_pat_[A-Za-z0-9_]{40,255}"),
    rule(Kind::Key, r"\bglpat-[A-Za-z0-9_-]{20,60}"),
    rule(Kind::Key, r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    rule(
        Kind::Key,
        r"https://hooks\.slack\.com/services/(?P<s>[A-Za-z0-9/]{20,120})",
    ),
    rule(Kind::Key, r"\bAIza[0-9A-Za-z_-]{35}"),
    rule(Kind::Key, r"\bya29\.[0-9A-Za-z_-]{20,400}"),
    rule(Kind::Key, r"\b[sr]k_(?:live|test)_[0-9a-zA-Z]{16,120}"),
    rule(Kind::Key, r"\bnpm_[A-Za-z0-9]{36}\b"),
    rule(Kind::Key, r"\bpypi-[A-Za-z0-9_-]{50,400}"),
    rule(
        Kind::Key,
        r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    ),
    rule(Kind::Key, r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    rule(
        Kind::Key,
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    rule(
        Kind::Key,
        r"(?i)\b(?:AccountKey|SharedAccessKey)=(?P<s>[A-Za-z0-9+/]{40,100}={0,2})",
    ),
    telling(
        Kind::Key,
        r"(?i)\b(?:bearer|basic|token)\s+(?P<s>[A-Za-z0-9._~+/-]{24,2000}={0,2})",
    ),
    telling(
        Kind::Key,
        r"(?i)[?&](?:api_?key|key|access_token|token|sig|signature|auth)=(?P<s>[A-Za-z0-9%._~+/-]{12,500})",
    ),
    telling(
        Kind::Key,
        r#"(?i)\b[a-z0-9_-]{0,40}(?:api[_-]?key|secret|access[_-]?key|token|credential)[a-z0-9_]{0,20}\b["']?\s{0,4}[:=]\s{0,4}["']?(?P<s>[A-Za-z0-9+/_.~-]{16,500}={0,2})"#,
    ),
    rule(
        Kind::Password,
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\[\]]{0,64}:(?P<s>[^\s/@\[\]]{1,128})@",
    ),
    rule(
        Kind::Password,
        r#"(?i)\b[a-z0-9_-]{0,40}(?:password|passwd|pwd|密码)[a-z0-9_]{0,20}["']?\s{0,4}[:=：]\s{0,4}["'](?P<s>[^\s"'\[\]]{6,128})["']"#,
    ),
    rule(
        Kind::Mail,
        r"(?i)\b[a-z0-9][a-z0-9._%+-]{0,63}@(?:[a-z0-9-]{1,63}\.){1,5}(?:com|org|net|edu|gov|mil|int|info|biz|name|io|ai|dev|app|co|me|xyz|tech|cloud|online|site|example|invalid|test|local|[a-z]{2}\.[a-z]{2}|us|uk|de|fr|cn|jp|kr|tw|hk|in|ru|br|it|es|nl|eu|ch|at|be|se|no|fi|dk|pl|cz|ca|au|nz|mx|ar|cl|za|tr|gr|il|ir|ie|pt|ua|sg|my|th|vn|id|ph|hu|ro|bg|sk|si|hr|lt|lv|ee)\b",
    ),
    rule(
        Kind::User,
        r#"(?:/home/|/Users/|(?i:[a-z]:(?:\\{1,4}|/)users(?:\\{1,4}|/)))(?P<s>[^/\\\s"'`<>:;,()\[\]{}|*?]{1,64})"#,
    ),
    rule(
        Kind::User,
        r"(?m)^(?:\([\w.-]{1,40}\) )?(?P<s>[a-z_][a-z0-9_-]{0,31}@[A-Za-z0-9][\w.-]{0,63}):[~/][^\n$#]{0,120}[$#] ",
    ),
];

/// Names in paths that are nobody's.
const NOBODY: [&str; 8] = [
    "user", "agent", "jovyan", "runner", "Shared", "Public", "Default", "username",
];

static COMPILED: LazyLock<Vec<(Kind, Regex, bool)>> = LazyLock::new(|| {
    let compile = |rule: &Rule| Some((rule.kind, Regex::new(rule.pattern).ok()?, rule.telling));
    RULES.iter().filter_map(compile).collect()
});

/// Which rules have anything to say: most texts hold nothing, and are looked at once.
static SET: LazyLock<Option<RegexSet>> =
    LazyLock::new(|| RegexSet::new(RULES.iter().map(|rule| rule.pattern)).ok());

/// The text with every find replaced.
pub(super) fn apply(text: &str) -> (String, Found) {
    let mut found = Found::default();
    if SET.as_ref().is_some_and(|set| !set.is_match(text)) {
        return (text.to_owned(), found);
    }
    let mut clean = text.to_owned();
    for (kind, rule, telling) in COMPILED.iter() {
        let mut count = 0;
        let put = |captures: &Captures<'_>| {
            let whole = captures.get(0).map_or(0..0, |whole| whole.range());
            let secret = captures.name("s").or(captures.get(0));
            let Some(secret) = secret else {
                return String::new();
            };
            let value = secret.as_str();
            let nobody = *kind == Kind::User && NOBODY.contains(&value);
            if nobody || (*telling && !is_telling(value)) {
                return captures[0].to_owned();
            }
            count += 1;
            let (before, after) = (secret.start() - whole.start, secret.end() - whole.start);
            let all = &captures[0];
            format!("{}{}{}", &all[..before], kind.placeholder(), &all[after..])
        };
        let replaced = rule.replace_all(&clean, put).into_owned();
        if count > 0 {
            *found.0.entry(*kind).or_default() += count;
            clean = replaced;
        }
    }
    (clean, found)
}

/// Whether a value looks drawn at random: letters and digits, and many different ones. Names of columns
/// and digests of files (hexadecimal alone) are no secrets.
fn is_telling(value: &str) -> bool {
    let (mut digits, mut letters, mut hex) = (0, 0, true);
    for c in value.chars() {
        digits += usize::from(c.is_ascii_digit());
        letters += usize::from(c.is_ascii_alphabetic());
        hex &= c.is_ascii_hexdigit() && !c.is_ascii_uppercase();
    }
    let digest = hex && [40, 64].contains(&value.len());
    digits >= 2 && letters >= 4 && !digest && entropy(value) >= 3.0
}

/// Bits per character.
pub(super) fn entropy(text: &str) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    for c in text.chars() {
        *counts.entry(c).or_insert(0u32) += 1;
    }
    let total = f64::from(counts.values().sum::<u32>());
    let bits = |count: &u32| {
        let share = f64::from(*count) / total;
        -share * share.log2()
    };
    counts.values().map(bits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles_and_finds_its_own() {
        assert_eq!(COMPILED.len(), RULES.len());
        assert!(SET.is_some());
        let r = "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2Yz3";
        let cases = [
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----".to_owned(),
                Kind::PrivateKey,
            ),
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), Kind::Key),
            (
                "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE1".to_owned(),
                Kind::Key,
            ),
            (format!("sk-proj-{r}"), Kind::Key),
            (format!("sk-{r}"), Kind::Key),
            (format!("hf_{}", &r[..34]), Kind::Key),
            (format!("ghp_{}", &r[..36]), Kind::Key),
            (format!("github_pat_{r}{r}"), Kind::Key),
            (format!("glpat-{}", &r[..20]), Kind::Key),
            (format!("xoxb-{r}"), Kind::Key),
            (
                "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXX".to_owned(),
                Kind::Key,
            ),
            (format!("AIza{}", &r[..35]), Kind::Key),
            (format!("ya29.{r}"), Kind::Key),
            (format!("sk_live_{}", &r[..24]), Kind::Key),
            (format!("npm_{}", &r[..36]), Kind::Key),
            (format!("pypi-{r}{r}"), Kind::Key),
            (format!("SG.{}.{}", &r[..22], &r[..38]), Kind::Key),
            (format!("123456789:AA{}", &r[..33]), Kind::Key),
            (
                format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{r}"),
                Kind::Key,
            ),
            (format!("AccountKey={r}{r}=="), Kind::Key),
            (format!("Authorization: Bearer {r}"), Kind::Key),
            (format!("https://a.org/x?api_key={r}"), Kind::Key),
            (format!("client_secret = \"{r}\""), Kind::Key),
            ("postgres://bob:hunter2@db/x".to_owned(), Kind::Password),
            ("password = 'correcthorse'".to_owned(), Kind::Password),
            ("密码：'abc12345'".to_owned(), Kind::Password),
            (
                "write to jane.doe+x@mail.example.com!".to_owned(),
                Kind::Mail,
            ),
            ("12345678@qq.com".to_owned(), Kind::Mail),
            ("open('/home/jane/a.csv')".to_owned(), Kind::User),
            (r"C:\Users\Jane\a.csv".to_owned(), Kind::User),
            ("C:\\\\Users\\\\Jane\\\\a.csv".to_owned(), Kind::User),
            ("/Users/jane/a".to_owned(), Kind::User),
            ("jane@box-3:~/work$ ls".to_owned(), Kind::User),
        ];
        for (sample, kind) in cases {
            let (clean, found) = apply(&sample);
            assert!(found.0.contains_key(&kind), "{sample} → {clean}: {found:?}");
            assert_ne!(clean, sample);
        }
    }

    #[test]
    fn only_the_secret_goes() {
        let cases = [
            (
                "postgres://bob:hunter2@db/x",
                "postgres://bob:[PASSWORD]@db/x",
            ),
            ("open('/home/jane/a.csv')", "open('/home/[USER]/a.csv')"),
            ("password = 'correcthorse'", "password = '[PASSWORD]'"),
            ("jane@box-3:~/work$ ls", "[USER]:~/work$ ls"),
            ("/home/user/a", "/home/user/a"),
            // A key that was cut, and one in a literal of JSON.
            (
                "k = '-----BEGIN PRIVATE KEY-----\nMIIB' # a key",
                "k = '[PRIVATE KEY]' # a key",
            ),
            (
                r#"{"k": "-----BEGIN EC PRIVATE KEY-----\nMIIB/+=\n-----END EC PRIVATE KEY-----\n"}"#,
                r#"{"k": "[PRIVATE KEY]\n"}"#,
            ),
        ];
        for (from, to) in cases {
            assert_eq!(apply(from).0, to);
        }
    }
}
