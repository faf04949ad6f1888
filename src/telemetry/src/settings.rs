//! Where telemetry is sent, from the environment variables of OpenTelemetry.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Settings of the export. They have no `Debug`: headers may hold keys.
pub(crate) struct Settings {
    /// The address of the collector, to which `/v1/traces` and `/v1/metrics` are added.
    endpoint: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) service: String,
    /// Time for a request.
    pub(crate) timeout: Duration,
    /// Time between two exports of spans, and of metrics.
    pub(crate) trace_interval: Duration,
    pub(crate) metric_interval: Duration,
}

impl Settings {
    /// `None` if no collector is named.
    ///
    /// # Errors
    /// The variable that is wrong, and why.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let is_off =
            variable("OTEL_SDK_DISABLED").is_some_and(|off| off.eq_ignore_ascii_case("true"));
        let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|text| !text.is_empty());
        let Some(endpoint) = endpoint.filter(|_| !is_off) else {
            return Ok(None);
        };
        let wrong = |why: &str| format!("OTEL_EXPORTER_OTLP_ENDPOINT: {why}");
        let endpoint = Url::parse(&endpoint).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(wrong(
                "expected an http or https URL, such as http://localhost:4318",
            ));
        }
        let protocol = variable("OTEL_EXPORTER_OTLP_PROTOCOL");
        if protocol.is_some_and(|protocol| protocol != "http/protobuf") {
            return Err("OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is supported".to_owned());
        }
        let millis = |name: &str, default: u64| match variable(name).map(|text| text.parse()) {
            None => Ok(Duration::from_millis(default)),
            Some(Ok(millis)) if millis > 0 => Ok(Duration::from_millis(millis)),
            Some(_) => Err(format!("{name}: expected a number of milliseconds")),
        };
        let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        Ok(Some(Self {
            endpoint,
            headers: parse_headers(&headers)?,
            service: variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "pybench".to_owned()),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
            trace_interval: millis("OTEL_BSP_SCHEDULE_DELAY", 5_000)?,
            metric_interval: millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
        }))
    }

    /// The address for `traces` or `metrics`.
    pub(crate) fn url(&self, signal: &str) -> Url {
        let mut url = self.endpoint.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{path}/v1/{signal}"));
        url
    }
}

/// `NAME=VALUE,NAME=VALUE`; values may be percent-encoded.
fn parse_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        // The value may be a key, so it is not shown.
        let wrong = || "OTEL_EXPORTER_OTLP_HEADERS: expected NAME=VALUE,NAME=VALUE".to_owned();
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        let value = decoded(value.trim()).ok_or_else(wrong)?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Decodes `%XX`.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/otlp/");

    #[test]
    fn without_an_endpoint_nothing_is_sent() {
        assert!(read(&[]).unwrap().is_none());
        assert!(
            read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")])
                .unwrap()
                .is_none()
        );
        assert!(
            read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")])
                .unwrap()
                .is_none()
        );
        let settings = read(&[ENDPOINT]).unwrap().unwrap();
        let url = settings.url("traces");
        assert_eq!(url.as_str(), "http://localhost:4318/otlp/v1/traces");
        assert_eq!(
            (settings.service.as_str(), settings.timeout.as_secs()),
            ("pybench", 10)
        );
    }

    #[test]
    fn headers_are_decoded_and_never_shown() {
        let headers = (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Basic%20abc,x-team=a",
        );
        let settings = read(&[ENDPOINT, headers]).unwrap().unwrap();
        assert_eq!(settings.headers["authorization"], "Basic abc");
        assert!(!format!("{:?}", settings.headers).contains("abc"));
        let error = read(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "secret")])
            .err()
            .unwrap();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn wrong_variables_are_named() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ] {
            let error = read(&[(name, value), ENDPOINT]).err().unwrap();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
