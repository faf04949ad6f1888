//! Which hosts may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most rules of a list.
const MAX_RULES: usize = 1000;
/// Longest name, as DNS has it.
const MAX_NAME: usize = 253;

/// Hosts that may be reached: `packages.test:443`, `*.example.org` (names below it, any port),
/// `192.0.2.7:8080`, `[2001:db8::1]:443`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowList(Vec<Rule>);

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    host: Host,
    /// `None`: every port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq)]
enum Host {
    Name(String),
    /// Names that end with this, which begins with a dot.
    Below(String),
    Address(IpAddr),
}

/// A rule that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Its text.
    #[error("{0:?} is no rule: expected a name, *.name or an address, with or without :port")]
    Rule(String),
    /// Too many.
    #[error("more than {MAX_RULES} rules")]
    Count,
}

impl AllowList {
    /// Read rules.
    ///
    /// # Errors
    /// [`RuleError`] with the text of the first that is none.
    pub fn parse<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let mut list = Vec::new();
        for text in rules {
            let wrong = || RuleError::Rule(text.chars().take(100).collect());
            list.push(rule(text.trim()).ok_or_else(wrong)?);
            if list.len() > MAX_RULES {
                return Err(RuleError::Count);
            }
        }
        Ok(Self(list))
    }

    /// Whether a host may be asked for.
    pub fn permits(&self, host: &str, port: u16) -> bool {
        let name = normal(host);
        let matches = |rule: &Rule| match &rule.host {
            Host::Name(known) => *known == name,
            Host::Below(end) => name.ends_with(end.as_str()) && name.len() > end.len(),
            Host::Address(known) => address(host) == Some(*known),
        };
        let mut rules = self.0.iter();
        rules.any(|rule| rule.port.is_none_or(|known| known == port) && matches(rule))
    }

    /// Whether a connection may go to an address that a permitted host has.
    pub(super) fn permits_address(&self, address: IpAddr, port: u16) -> bool {
        let named = |rule: &Rule| {
            rule.host == Host::Address(address) && rule.port.is_none_or(|known| known == port)
        };
        is_public(address) || self.0.iter().any(named)
    }
}

/// Lower case, without the dot that may end a name.
fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// An address, in brackets or bare.
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
        (None, Some(below)) => Host::Below(normal(below)).checked()?,
        (None, None) => Host::Name(normal(host)).checked()?,
    };
    Some(Rule { host, port })
}

impl Host {
    /// Itself, if its name is one.
    fn checked(self) -> Option<Self> {
        let name = match &self {
            Self::Name(name) => name,
            Self::Below(end) => end.strip_prefix('.')?,
            Self::Address(_) => return Some(self),
        };
        is_name(name).then_some(self)
    }
}

/// Whether a text is a host name; all that ends in a number is an address to somebody.
pub(super) fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|c| c.is_ascii_digit()) || last.starts_with("0x");
    (1..=MAX_NAME).contains(&name.len()) && name.split('.').all(label) && !number
}

/// Whether an address lies in the public network, and not in the host's own or one of a special use
/// (RFC 6890 and its registries).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99);
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // Addresses of version 4 in disguise are refused with the rest: only 2000::/3 is public.
    let teredo_or_tests = parts[0] == 0x2001 && (parts[1] < 0x200 || parts[1] == 0xdb8);
    let disguised = parts[0] == 0x2002 || (parts[0] == 0x3fff && parts[1] < 0x1000);
    parts[0] & 0xe000 == 0x2000 && !teredo_or_tests && !disguised
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_say_what_may_be_reached() {
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
            assert!(list.permits(host, port), "{host}:{port}");
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
            assert!(!list.permits(host, port), "{host}:{port}");
        }
        assert!(!AllowList::default().permits("packages.test", 443));
    }

    #[test]
    fn wrong_rules_are_named() {
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
                Err(RuleError::Rule(text.to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn only_public_addresses_are_reached_by_name() {
        let list = AllowList::parse(["*.example.org", "10.1.2.3:80"]).unwrap();
        let permits = |text: &str| list.permits_address(text.parse().unwrap(), 80);
        for text in ["93.184.216.34", "2606:2800:220:1::1", "10.1.2.3"] {
            assert!(permits(text), "{text}");
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
            assert!(!permits(text), "{text}");
        }
        assert!(!list.permits_address("10.1.2.3".parse().unwrap(), 81));
    }

    #[test]
    fn fuzz_rules() {
        bolero::check!().with_type::<(String, String)>().for_each(
            |(rule, host): &(String, String)| {
                if let Ok(list) = AllowList::parse([rule.as_str()]) {
                    list.permits(host, 443);
                    assert!(!list.permits("", 443));
                }
            },
        );
    }
}
