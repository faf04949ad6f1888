//! Parses the request heads of proxy clients. They come from sessions and are untrusted.

/// Maximum size of a head, bytes.
pub(super) const MAX_HEAD: usize = 16 << 10;
/// Maximum number of header lines.
const MAX_LINES: usize = 100;

/// A valid proxy request.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) method: String,
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The head to forward to the host; `None` for `CONNECT`.
    pub(super) forwarded_head: Option<Vec<u8>>,
}

/// The end of the head, if it is complete.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(at + 4)
}

/// Parses a head including its final empty line; `None` if it is invalid.
pub(super) fn parse(head: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    // httparse skips empty lines before the request and takes a bare line feed for the end of a line.
    let starts = text.starts_with(|c: char| c.is_ascii_uppercase());
    if !starts || text.replace("\r\n", "").contains(['\r', '\n']) {
        return None;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_LINES];
    let mut request = httparse::Request::new(&mut headers);
    let whole = httparse::Status::Complete(head.len());
    if request.parse(head).ok()? != whole {
        return None;
    }
    let (method, target) = (request.method?, request.path?);
    if !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        return Some(Request {
            method: method.to_owned(),
            host,
            port,
            forwarded_head: None,
        });
    }
    let rest = target.strip_prefix("http://")?;
    let (name, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = authority(name, Some(80))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head =
        format!("{method} {slash}{path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n");
    for header in request.headers.iter().filter(|h| !is_replaced(h.name)) {
        let value = std::str::from_utf8(header.value).ok()?;
        head += &format!("{}: {value}\r\n", header.name);
    }
    Some(Request {
        method: method.to_owned(),
        host,
        port,
        forwarded_head: Some((head + "\r\n").into_bytes()),
    })
}

/// Whether a header is hop-by-hop or `Host`; these are not forwarded as they are.
fn is_replaced(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(
        name.as_str(),
        "host" | "connection" | "keep-alive" | "upgrade"
    ) || name.starts_with("proxy-")
}

/// Parses `host:port`; `default_port` is used if there is no port.
fn authority(text: &str, default_port: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            (host, if digits { port.parse().ok() } else { None }?)
        }
        _ => (text, default_port?),
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let known = match bare {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.parse::<std::net::Ipv4Addr>().is_ok()
                || super::allow::is_name(host.strip_suffix('.').unwrap_or(host))
        }
    };
    (known && port != 0).then(|| (bare.unwrap_or(host).to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_request_forms_are_parsed() {
        let tunnel =
            parse(b"CONNECT packages.test:443 HTTP/1.1\r\nHost: evil.net\r\n\r\n").unwrap();
        assert_eq!(
            (tunnel.host.as_str(), tunnel.port, tunnel.forwarded_head),
            ("packages.test", 443, None)
        );
        let six = parse(b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("2001:db8::1", 443));
        let plain = b"GET http://example.org/a?b HTTP/1.1\r\nHost: evil.net\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n";
        let plain = parse(plain).unwrap();
        let expected =
            "GET /a?b HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\nAccept: */*\r\n\r\n";
        assert_eq!(
            String::from_utf8(plain.forwarded_head.unwrap()).unwrap(),
            expected
        );
        let bare = parse(b"GET http://example.org:81?q HTTP/1.1\r\n\r\n").unwrap();
        assert!(
            bare.port == 81
                && bare
                    .forwarded_head
                    .unwrap()
                    .starts_with(b"GET /?q HTTP/1.1\r\nHost: example.org:81\r\n")
        );
    }

    #[test]
    fn everything_else_is_refused() {
        for head in [
            "",
            "\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://a.org/ HTTP/1.1\r\n\r\n",
            "CONNECT a.org HTTP/1.1\r\n\r\n",
            "CONNECT a.org:0 HTTP/1.1\r\n\r\n",
            "CONNECT a.org:+443 HTTP/1.1\r\n\r\n",
            "CONNECT user@a.org:443 HTTP/1.1\r\n\r\n",
            "CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
            "CONNECT 0x7f.1:80 HTTP/1.1\r\n\r\n",
            "CONNECT [::1%25lo]:80 HTTP/1.1\r\n\r\n",
            "CONNECT a.org:443 HTTP/2\r\n\r\n",
            "CONNECT  a.org:443 HTTP/1.1\r\n\r\n",
            "get http://a.org/ HTTP/1.1\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nno colon\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\n folded: x\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: b",
            "\r\nGET http://a.org/ HTTP/1.1\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\nA: b\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA: b\0\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\nA : b\r\n\r\n",
            "GET http://a.org/ HTTP/1.1\r\n\r\nmore\r\n\r\n",
        ] {
            assert_eq!(parse(head.as_bytes()), None, "{head:?}");
        }
        let lines = |count| {
            format!(
                "GET http://a.org/ HTTP/1.1\r\n{}\r\n",
                "A: b\r\n".repeat(count)
            )
        };
        assert!(parse(lines(MAX_LINES).as_bytes()).is_some());
        assert_eq!(parse(lines(MAX_LINES + 1).as_bytes()), None);
    }

    #[test]
    fn fuzz_request_heads() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for prefix in ["", "CONNECT ", "GET http://"] {
                let head = [prefix.as_bytes(), bytes, b" HTTP/1.1\r\n\r\n"].concat();
                let Some(request) = parse(&head) else {
                    continue;
                };
                let name = |host: &str| !host.contains(['\r', '\n', ' ', '/', '@', '\0']);
                assert!(name(&request.host) && request.port != 0, "{request:?}");
                let lines = request
                    .forwarded_head
                    .unwrap_or_else(|| b"\r\n\r\n".to_vec());
                assert_eq!(end_of_head(&lines), Some(lines.len()));
            }
        });
    }
}
