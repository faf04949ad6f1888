//! Patterns of secrets and personal data.

use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

use super::SecretCounts;

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// A key or token of a service.
    Key,
    PrivateKey,
    /// A password in a URL, or assigned to a variable with such a name.
    Password,
    /// An email address.
    Mail,
    /// A user name in a path or a shell prompt.
    User,
    /// A path on this machine.
    Path,
    /// A host name.
    Host,
}

impl SecretKind {
    /// The replacement text.
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

/// A rule replaces its group `s`, or the whole match if there is no such group. With `random_only` it applies only to
/// values that look random.
struct Rule {
    kind: SecretKind,
    pattern: &'static str,
    random_only: bool,
}

const fn rule(kind: SecretKind, pattern: &'static str) -> Rule {
    Rule {
        kind,
        pattern,
        random_only: false,
    }
}

const fn random_rule(kind: SecretKind, pattern: &'static str) -> Rule {
    Rule {
        kind,
        pattern,
        random_only: true,
    }
}

/// The rules in order of application. Long matches have no upper bound: a large count compiles to as many states, and
/// matching is linear anyway. Email addresses must end in a common top-level domain, because `A@B.dot` is Python code.
const RULES: [Rule; 27] = [
    rule(
        SecretKind::PrivateKey,
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,.-]*?-----END [A-Z ]{0,40}PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)",
    ),
    rule(SecretKind::Key, r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b"),
    random_rule(
        SecretKind::Key,
        r#"(?i)aws.{0,20}?(?:secret|key)[^\n=:]{0,20}[=:]\s{0,4}["']?(?P<s>[A-Za-z0-9/+=]{40})"#,
    ),
    random_rule(
        SecretKind::Key,
        r"\bsk-(?:[a-z]{2,10}[0-9]{0,2}-)?[A-Za-z0-9_-]{20,400}",
    ),
    rule(SecretKind::Key, r"\bhf_[A-Za-z0-9]{30,60}\b"),
    rule(SecretKind::Key, r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    rule(SecretKind::Key, r"\bgithub_pat_[A-Za-z0-9_]{40,255}"),
    rule(SecretKind::Key, r"\bglpat-[A-Za-z0-9_-]{20,60}"),
    rule(SecretKind::Key, r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}"),
    rule(
        SecretKind::Key,
        r"https://hooks\.slack\.com/services/(?P<s>[A-Za-z0-9/]{20,120})",
    ),
    rule(SecretKind::Key, r"\bAIza[0-9A-Za-z_-]{35}"),
    rule(SecretKind::Key, r"\bya29\.[0-9A-Za-z_-]{20,400}"),
    rule(
        SecretKind::Key,
        r"\b[sr]k_(?:live|test)_[0-9a-zA-Z]{16,120}",
    ),
    rule(SecretKind::Key, r"\bnpm_[A-Za-z0-9]{36}\b"),
    rule(SecretKind::Key, r"\bpypi-[A-Za-z0-9_-]{50,400}"),
    rule(
        SecretKind::Key,
        r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    ),
    rule(SecretKind::Key, r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    rule(
        SecretKind::Key,
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    ),
    rule(
        SecretKind::Key,
        r"(?i)\b(?:AccountKey|SharedAccessKey)=(?P<s>[A-Za-z0-9+/]{40,100}={0,2})",
    ),
    random_rule(
        SecretKind::Key,
        r"(?i)\b(?:bearer|basic|token)\s+(?P<s>[A-Za-z0-9._~+/-]{24,2000}={0,2})",
    ),
    random_rule(
        SecretKind::Key,
        r"(?i)[?&](?:api_?key|key|access_token|token|sig|signature|auth)=(?P<s>[A-Za-z0-9%._~+/-]{12,500})",
    ),
    random_rule(
        SecretKind::Key,
        r#"(?i)\b[a-z0-9_-]{0,40}(?:api[_-]?key|secret|access[_-]?key|token|credential)[a-z0-9_]{0,20}\b["']?\s{0,4}[:=]\s{0,4}["']?(?P<s>[A-Za-z0-9+/_.~-]{16,500}={0,2})"#,
    ),
    rule(
        SecretKind::Password,
        r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\[\]]{0,64}:(?P<s>[^\s/@\[\]]{1,128})@",
    ),
    rule(
        SecretKind::Password,
        r#"(?i)(?:\b[a-z0-9_-]{0,40}(?:password|passwd|pwd)|密码)[a-z0-9_]{0,20}["']?\s{0,4}[:=：]\s{0,4}["'](?P<s>[^\s"'\[\]]{6,128})["']"#,
    ),
    rule(
        SecretKind::Mail,
        r"(?i)\b[a-z0-9][a-z0-9._%+-]{0,63}@(?:[a-z0-9-]{1,63}\.){1,5}(?:com|org|net|edu|gov|mil|int|info|biz|name|io|ai|dev|app|co|me|xyz|tech|cloud|online|site|example|invalid|test|local|[a-z]{2}\.[a-z]{2}|us|uk|de|fr|cn|jp|kr|tw|hk|in|ru|br|it|es|nl|eu|ch|at|be|se|no|fi|dk|pl|cz|ca|au|nz|mx|ar|cl|za|tr|gr|il|ir|ie|pt|ua|sg|my|th|vn|id|ph|hu|ro|bg|sk|si|hr|lt|lv|ee)\b",
    ),
    rule(
        SecretKind::User,
        r#"(?:/home/|/Users/|(?i:[a-z]:(?:\\{1,4}|/)users(?:\\{1,4}|/)))(?P<s>[^/\\\s"'`<>:;,()\[\]{}|*?]{1,64})"#,
    ),
    rule(
        SecretKind::User,
        r"(?m)^(?:\([\w.-]{1,40}\) )?(?P<s>[a-z_][a-z0-9_-]{0,31}@[A-Za-z0-9][\w.-]{0,63}):[~/][^\n$#]{0,120}[$#] ",
    ),
];

/// User names in paths that do not identify a person.
const GENERIC_USERS: [&str; 8] = [
    "user", "agent", "jovyan", "runner", "Shared", "Public", "Default", "username",
];

static COMPILED: LazyLock<Vec<(SecretKind, Regex, bool)>> = LazyLock::new(|| {
    let compile = |rule: &Rule| {
        let pattern = Regex::new(&bounded(rule)).ok()?;
        Some((rule.kind, pattern, rule.random_only))
    };
    RULES.iter().filter_map(compile).collect()
});

/// Memory for the states of the automaton, in bytes. The bytes of pictures reach so many states that with the default
/// it gives up, and the search becomes many times slower.
const AUTOMATON_BYTES: usize = 64 << 20;

/// All rules at once. Most texts match none of them and need only this test.
static SET: LazyLock<Option<RegexSet>> = LazyLock::new(|| {
    let mut set = RegexSetBuilder::new(RULES.iter().map(bounded));
    set.dfa_size_limit(AUTOMATON_BYTES).build().ok()
});

/// The pattern of a rule. Its word boundaries are those of ASCII: a key begins after a Chinese character too, and
/// other boundaries make the search leave its automaton, which takes many times as long.
fn bounded(rule: &Rule) -> String {
    rule.pattern.replace(r"\b", r"(?-u:\b)")
}

/// Replace all findings in a text.
pub(super) fn apply(text: &str) -> (String, SecretCounts) {
    let mut found = SecretCounts::default();
    if SET.as_ref().is_some_and(|set| !set.is_match(text)) {
        return (text.to_owned(), found);
    }
    let mut clean = text.to_owned();
    for (kind, rule, random_only) in COMPILED.iter() {
        let mut count = 0;
        let replace = |captures: &Captures<'_>| {
            let whole = captures.get(0).map_or(0..0, |whole| whole.range());
            let secret = captures.name("s").or(captures.get(0));
            let Some(secret) = secret else {
                return String::new();
            };
            let value = secret.as_str();
            let is_generic = *kind == SecretKind::User && GENERIC_USERS.contains(&value);
            if is_generic || (*random_only && !is_random(value)) {
                return captures[0].to_owned();
            }
            count += 1;
            let (before, after) = (secret.start() - whole.start, secret.end() - whole.start);
            let all = &captures[0];
            format!("{}{}{}", &all[..before], kind.placeholder(), &all[after..])
        };
        let replaced = rule.replace_all(&clean, replace).into_owned();
        if count > 0 {
            *found.0.entry(*kind).or_default() += count;
            clean = replaced;
        }
    }
    (clean, found)
}

/// Whether a value looks random: it has letters and digits and a high entropy. Column names and hexadecimal digests of
/// files do not count.
fn is_random(value: &str) -> bool {
    let (mut digits, mut letters, mut hex) = (0, 0, true);
    for c in value.chars() {
        digits += usize::from(c.is_ascii_digit());
        letters += usize::from(c.is_ascii_alphabetic());
        hex &= c.is_ascii_hexdigit() && !c.is_ascii_uppercase();
    }
    let digest = hex && [40, 64].contains(&value.len());
    digits >= 2 && letters >= 4 && !digest && entropy(value) >= 3.0
}

/// Shannon entropy in bits per character.
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
    fn every_rule_compiles_and_matches_its_example() {
        assert_eq!(COMPILED.len(), RULES.len());
        assert!(SET.is_some());
        // An escaped backslash before a `b` would be no boundary.
        assert!(RULES.iter().all(|rule| !rule.pattern.contains(r"\\b")));
        let r = "Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2Yz3";
        let cases = [
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----".to_owned(),
                SecretKind::PrivateKey,
            ),
            ("AKIAIOSFODNN7EXAMPLE".to_owned(), SecretKind::Key),
            ("钥匙AKIAIOSFODNN7EXAMPLE在此".to_owned(), SecretKind::Key),
            (
                "邮箱jane.doe@corp.example.com。".to_owned(),
                SecretKind::Mail,
            ),
            (
                "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE1".to_owned(),
                SecretKind::Key,
            ),
            (format!("sk-proj-{r}"), SecretKind::Key),
            (format!("sk-{r}"), SecretKind::Key),
            (format!("hf_{}", &r[..34]), SecretKind::Key),
            (format!("ghp_{}", &r[..36]), SecretKind::Key),
            (format!("github_pat_{r}{r}"), SecretKind::Key),
            (format!("glpat-{}", &r[..20]), SecretKind::Key),
            (format!("xoxb-{r}"), SecretKind::Key),
            (
                "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXX".to_owned(),
                SecretKind::Key,
            ),
            (format!("AIza{}", &r[..35]), SecretKind::Key),
            (format!("ya29.{r}"), SecretKind::Key),
            (format!("sk_live_{}", &r[..24]), SecretKind::Key),
            (format!("npm_{}", &r[..36]), SecretKind::Key),
            (format!("pypi-{r}{r}"), SecretKind::Key),
            (format!("SG.{}.{}", &r[..22], &r[..38]), SecretKind::Key),
            (format!("123456789:AA{}", &r[..33]), SecretKind::Key),
            (
                format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{r}"),
                SecretKind::Key,
            ),
            (format!("AccountKey={r}{r}=="), SecretKind::Key),
            (format!("Authorization: Bearer {r}"), SecretKind::Key),
            (format!("https://a.org/x?api_key={r}"), SecretKind::Key),
            (format!("client_secret = \"{r}\""), SecretKind::Key),
            (
                "postgres://bob:hunter2@db/x".to_owned(),
                SecretKind::Password,
            ),
            ("password = 'correcthorse'".to_owned(), SecretKind::Password),
            ("密码：'abc12345'".to_owned(), SecretKind::Password),
            (
                "write to jane.doe+x@mail.example.com!".to_owned(),
                SecretKind::Mail,
            ),
            ("12345678@qq.com".to_owned(), SecretKind::Mail),
            ("open('/home/jane/a.csv')".to_owned(), SecretKind::User),
            (r"C:\Users\Jane\a.csv".to_owned(), SecretKind::User),
            ("C:\\\\Users\\\\Jane\\\\a.csv".to_owned(), SecretKind::User),
            ("/Users/jane/a".to_owned(), SecretKind::User),
            ("jane@box-3:~/work$ ls".to_owned(), SecretKind::User),
        ];
        for (sample, kind) in cases {
            let (clean, found) = apply(&sample);
            assert!(found.0.contains_key(&kind), "{sample} → {clean}: {found:?}");
            assert_ne!(clean, sample);
        }
    }

    #[test]
    fn only_the_secret_is_replaced() {
        let cases = [
            (
                "postgres://bob:hunter2@db/x",
                "postgres://bob:[PASSWORD]@db/x",
            ),
            ("open('/home/jane/a.csv')", "open('/home/[USER]/a.csv')"),
            ("password = 'correcthorse'", "password = '[PASSWORD]'"),
            ("jane@box-3:~/work$ ls", "[USER]:~/work$ ls"),
            ("/home/user/a", "/home/user/a"),
            // A truncated key, and a key in a JSON string.
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
