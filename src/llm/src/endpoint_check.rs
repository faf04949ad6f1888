//! Which keys may be sent to an address that is named outside a recipe: on a page, or in a saved conversation.

use pybench_run::RunError;
use pybench_types::address::is_loopback_host;
use reqwest::Url;

/// Maximum length of an address and of a variable's name, bytes.
const MAX_FIELD: usize = 400;

/// Checks the base URL of an endpoint, which may be of this machine or of any other one, and the variables whose values are
/// sent to it. `variable` reads environment variables.
///
/// # Errors
/// [`RunError::BadInput`] if the URL has secrets in it, a key would be sent in clear, or a variable is not set.
pub fn check_endpoint(
    base_url: &str,
    keys: &[&str],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    let url = parsed(base_url)?;
    keys.iter()
        .try_for_each(|name| check_key(name, &url, &variable))
}

/// Whether a URL is of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(is_loopback_host)
}

fn parsed(address: &str) -> Result<Url, RunError> {
    let wrong = |why: &str| {
        RunError::BadInput(format!(
            "the address of the endpoint {why}; expected an address such as https://api.openai.com/v1"
        ))
    };
    if address.len() > MAX_FIELD {
        return Err(wrong("is too long"));
    }
    // The parser would leave them out.
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
    let url = Url::parse(address).ok();
    let url = url.filter(|_| !address.contains(is_odd));
    let url = url.ok_or_else(|| wrong("cannot be read"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("begins neither with http:// nor with https://"));
    }
    // It is saved and shown again, so it must not be secret.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("has a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a part behind `?` or `#`"));
    }
    Ok(url)
}

/// Checks that a variable has a key that may be sent to this address. Its value is not looked at.
fn check_key(
    name: &str,
    url: &Url,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = (1..=MAX_FIELD).contains(&name.len())
        && name.chars().all(in_name)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    // Somebody may have written a key instead of a name, so what they wrote is not repeated.
    if !is_name {
        return Err(RunError::BadInput(
            "the variable of the key has letters, digits and `_` only; write the variable's name, such as OPENAI_API_KEY, \
             and never the key"
                .to_owned(),
        ));
    }
    if url.scheme() != "https" && !is_loopback(url) {
        return Err(RunError::BadInput(
            "a key is sent over https, or over http to this machine only; give an https address, or no key".to_owned(),
        ));
    }
    match variable(name).is_some_and(|value| !value.is_empty()) {
        true => Ok(()),
        false => Err(RunError::BadInput(
            "the variable of the key is not set in the environment of pybench; end pybench, export the variable, and start \
             it again"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        (name == "MY_KEY").then(|| "sk-secret".to_owned())
    }

    fn refused(address: &str, keys: &[&str]) -> String {
        let refused = check_endpoint(address, keys, environment);
        refused.unwrap_err().to_string()
    }

    #[test]
    fn addresses_of_any_machine_are_allowed_without_secrets_in_them() {
        for address in [
            "http://127.0.0.1:8000/v1",
            "http://192.168.0.7:8000/v1",
            "https://api.openai.com/v1/",
        ] {
            check_endpoint(address, &[], environment).unwrap();
        }
        for address in [
            "",
            "file:///etc/passwd",
            "ftp://h/v1",
            "/v1",
            "h/v1",
            "https://",
            "https://a:b@h/v1",
            "https://h/v1?key=x",
            "https://h/v1#x",
            "https://h /v1",
            "https://h\\@other/v1",
            "https://h\n/v1",
        ] {
            let error = refused(address, &[]);
            assert!(
                error.contains("https://api.openai.com/v1"),
                "{address}: {error}"
            );
        }
    }

    #[test]
    fn keys_are_named_and_sent_in_secret_only() {
        for address in [
            "https://h/v1",
            "http://localhost:8000/v1",
            "http://127.0.0.1/v1",
            "http://[::1]:8000/v1",
        ] {
            check_endpoint(address, &["MY_KEY"], environment).unwrap();
        }
        for address in [
            "http://h/v1",
            "http://localhost.h/v1",
            "http://127.0.0.1.h/v1",
        ] {
            let error = refused(address, &["MY_KEY"]);
            assert!(error.contains("over https"), "{address}: {error}");
        }
        let error = refused("https://h/v1", &["MY_KEY", "OTHER_KEY"]);
        assert!(error.contains("not set"), "{error}");
        // A key instead of a name is not repeated.
        for key in ["sk-secret", "hf_secret", ""] {
            let error = refused("https://h/v1", &[key]);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
