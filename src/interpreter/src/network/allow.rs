//! The list of hosts that sessions may connect to.

use std::net::IpAddr;

use pybench_types::address::is_public;

/// Maximum number of rules.
const MAX_RULES: usize = 1000;
/// Maximum length of a DNS name.
const MAX_NAME: usize = 253;

/// Allowed hosts: `packages.test:443`, `*.example.org` (its subdomains, any port),
/// `192.0.2.7:8080`, `[2001:db8::1]:443`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowList(Vec<Rule>);

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    host: Host,
    /// `None`: all ports.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
enum Host {
    Name(String),
    /// Names with this suffix, which starts with a dot.
    Subdomains(String),
    Address(IpAddr),
}

/// An invalid list of hosts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The text of an invalid rule.
    #[error(
        "{0:?} is not a valid host: expected a name, *.name or an IP address, with or without :port"
    )]
    Invalid(String),
    #[error("the list has more than {MAX_RULES} hosts")]
    TooMany,
}

impl AllowList {
    /// Parses a list of rules.
    ///
    /// # Errors
    /// [`RuleError`] for the first invalid rule.
    pub fn parse<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let mut list = Vec::new();
        for text in rules {
            let wrong = || RuleError::Invalid(text.chars().take(100).collect());
            list.push(rule(text.trim()).ok_or_else(wrong)?);
            if list.len() > MAX_RULES {
                return Err(RuleError::TooMany);
            }
        }
        Ok(Self(list))
    }

    /// Whether requests for a host are allowed.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        let name = normalize_host(host);
        let matches = |rule: &Rule| match &rule.host {
            Host::Name(known) => *known == name,
            Host::Subdomains(end) => name.ends_with(end.as_str()) && name.len() > end.len(),
            Host::Address(known) => address(host) == Some(*known),
        };
        let mut rules = self.0.iter();
        rules.any(|rule| rule.port.is_none_or(|known| known == port) && matches(rule))
    }

    /// Whether connecting to an address of an allowed host is allowed.
    pub(super) fn allows_address(&self, address: IpAddr, port: u16) -> bool {
        let named = |rule: &Rule| {
            rule.host == Host::Address(address) && rule.port.is_none_or(|known| known == port)
        };
        is_public(address) || self.0.iter().any(named)
    }
}

/// Lower case, without a trailing dot.
fn normalize_host(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Parses an IP address, with or without brackets.
fn address(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

fn rule(text: &str) -> Option<Rule> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if address(text).is_none() => (host, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let host = match (address(host), host.strip_prefix('*')) {
        (Some(address), _) => Host::Address(address),
        (None, Some(below)) => Host::Subdomains(normalize_host(below)).checked()?,
        (None, None) => Host::Name(normalize_host(host)).checked()?,
    };
    Some(Rule { host, port })
}

impl Host {
    /// Returns the host if its name is valid.
    fn checked(self) -> Option<Self> {
        let name = match &self {
            Self::Name(name) => name,
            Self::Subdomains(end) => end.strip_prefix('.')?,
            Self::Address(_) => return Some(self),
        };
        is_name(name).then_some(self)
    }
}

/// Whether a text is a host name. Names that end in a number are refused: some resolvers treat them as
/// addresses.
pub(super) fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    (1..=MAX_NAME).contains(&name.len()) && name.split('.').all(label) && !number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_are_allowed() {
        let rules = [
            "Packages.Test:443",
            "*.example.org",
            "192.0.2.7:8080",
            "[2001:db8::1]:443",
            "2001:db8::2",
        ];
        let list = AllowList::parse(rules).unwrap();
        for (host, port) in [
            ("packages.test", 443),
            ("packages.test.", 443),
            ("a.example.org", 1),
            ("b.A.example.org", 80),
            ("192.0.2.7", 8080),
            ("[2001:db8::1]", 443),
            ("[2001:db8::2]", 9),
        ] {
            assert!(list.allows(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("packages.test", 80),
            ("evil-packages.test", 443),
            ("packages.test.evil.net", 443),
            ("example.org", 80),
            ("badexample.org", 80),
            (".example.org", 80),
            ("192.0.2.7", 80),
            ("3221225991", 8080),
            ("", 443),
        ] {
            assert!(!list.allows(host, port), "{host}:{port}");
        }
        assert!(!AllowList::default().allows("packages.test", 443));
    }

    #[test]
    fn errors_name_invalid_rules() {
        for text in [
            "",
            "*",
            "*.",
            "*example.org",
            "a b",
            "http://packages.test",
            "packages.test:x",
            "packages.test:70000",
            "1.2.3",
            "a..b",
            "0x7f.1",
        ] {
            assert_eq!(
                AllowList::parse([text]),
                Err(RuleError::Invalid(text.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn names_lead_only_to_public_addresses() {
        let list = AllowList::parse(["*.example.org", "10.1.2.3:80"]).unwrap();
        let allows = |text: &str| list.allows_address(text.parse().unwrap(), 80);
        for text in ["93.184.216.34", "2606:2800:220:1::1", "10.1.2.3"] {
            assert!(allows(text), "{text}");
        }
        for text in [
            "127.0.0.1",
            "10.1.2.4",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:1::",
            "2001:db8::1",
        ] {
            assert!(!allows(text), "{text}");
        }
        assert!(!list.allows_address("10.1.2.3".parse().unwrap(), 81));
    }

    #[test]
    fn fuzz_rules() {
        bolero::check!().with_type::<(String, String)>().for_each(
            |(rule, host): &(String, String)| {
                if let Ok(list) = AllowList::parse([rule.as_str()]) {
                    list.allows(host, 443);
                    assert!(!list.allows("", 443));
                }
            },
        );
    }
}
