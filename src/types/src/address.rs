//! Public, loopback and other Internet addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is public, not private or special-purpose (RFC 6890 and its registries).
pub fn is_public(address: IpAddr) -> bool {
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
    // Only 2000::/3 is public; this also refuses mapped and translated IPv4 addresses.
    let teredo_or_tests = parts[0] == 0x2001 && (parts[1] < 0x200 || parts[1] == 0xdb8);
    let tunneled = parts[0] == 0x2002 || (parts[0] == 0x3fff && parts[1] < 0x1000);
    parts[0] & 0xe000 == 0x2000 && !teredo_or_tests && !tunneled
}

/// Whether a host, as an address names it, can only be this machine: a loopback address, an IPv6 one also in brackets, or
/// `localhost`. Other spellings are not: upper case, a final dot, an IPv4 address mapped to IPv6.
pub fn is_loopback_host(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(host) => host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()),
        None => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_of_this_machine_are_loopback() {
        for host in [
            "127.0.0.1",
            "127.0.0.2",
            "127.255.255.255",
            "::1",
            "[::1]",
            "0:0:0:0:0:0:0:1",
            "localhost",
        ] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in [
            "",
            "[]",
            "0.0.0.0",
            "::",
            "126.0.0.1",
            "128.0.0.1",
            "127.1",
            "127.0.0.01",
            "2130706433",
            "127.0.0.1.",
            "127.0.0.1:80",
            "127.0.0.1.example.org",
            "::ffff:127.0.0.1",
            "[::ffff:127.0.0.1]",
            "[127.0.0.1]",
            "[[::1]]",
            "[::1",
            "::1]",
            "[localhost]",
            "localhost.",
            "LOCALHOST",
            " localhost",
            "localhost.example.org",
            "x.localhost",
        ] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn special_addresses_are_not_public() {
        let public = |text: &str| is_public(text.parse().unwrap());
        assert!(public("93.184.216.34") && public("2606:2800:220:1::1"));
        for text in [
            "127.0.0.1",
            "169.254.169.254",
            "10.0.0.1",
            "::1",
            "::ffff:10.0.0.1",
            "fd00::1",
        ] {
            assert!(!public(text), "{text}");
        }
    }
}
