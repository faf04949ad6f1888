//! Endpoints that a person names on the page: what is allowed, and those that were used in this project before.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use axum::http::Uri;
use pybench_chat::agents;
use pybench_chat::settings::Settings;
use pybench_run::{RunError, write_atomically};
use pybench_types::address::is_loopback_host;

use super::view::ChatEndpoint;

/// File of the endpoints, in the folder of the history.
const FILE: &str = "endpoints.json";
/// Maximum number of endpoints that are remembered.
const MAX_REMEMBERED: usize = 10;
/// Maximum length of an address, a model's name and a variable's name, bytes.
const MAX_FIELD: usize = 400;

/// The settings of a conversation with an endpoint. `variable` reads the environment of the server.
///
/// # Errors
/// [`RunError::BadInput`] if the endpoint is not allowed, or the variable is not set.
pub(crate) fn settings(
    endpoint: &ChatEndpoint,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings, RunError> {
    let ChatEndpoint {
        address,
        model,
        key_env,
    } = endpoint;
    if model.trim().is_empty() || model.len() > MAX_FIELD || model.contains(char::is_control) {
        return Err(RunError::BadInput(
            "name the model as the endpoint knows it".to_owned(),
        ));
    }
    let uri = parsed(address)?;
    if let Some(name) = key_env {
        check_key(name, &uri, variable)?;
    }
    Ok(agents::of_endpoint(model, address, key_env.as_deref()))
}

/// The address, which may be of this machine or of any other one: the person who opened the studio chooses it.
fn parsed(address: &str) -> Result<Uri, RunError> {
    let wrong = |why: &str| {
        RunError::BadInput(format!(
            "the address of the endpoint {why}; expected an address such as https://api.openai.com/v1"
        ))
    };
    if address.len() > MAX_FIELD {
        return Err(wrong("is too long"));
    }
    let uri: Uri = address.parse().map_err(|_| wrong("cannot be read"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("begins neither with http:// nor with https://"));
    }
    // What a page sends is saved and shown again, so it must not be secret.
    let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("has a user name or password"));
    }
    if uri.query().is_some() || address.contains('#') {
        return Err(wrong("has a part behind `?` or `#`"));
    }
    Ok(uri)
}

/// Checks that a variable has a key that may be sent to this address. Its value is not looked at.
fn check_key(
    name: &str,
    address: &Uri,
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
    if address.scheme_str() != Some("https") && !is_this_machine(address) {
        return Err(RunError::BadInput(
            "a key is sent over https, or over http to this machine only; give an https address, or no key".to_owned(),
        ));
    }
    match variable(name).is_some_and(|value| !value.is_empty()) {
        true => Ok(()),
        false => Err(RunError::BadInput(
            "the variable of the key is not set in the environment of the studio; end the studio, export the variable, and \
             start it again"
                .to_owned(),
        )),
    }
}

fn is_this_machine(address: &Uri) -> bool {
    let host = address.host().map(str::to_ascii_lowercase);
    host.is_some_and(|host| is_loopback_host(&host))
}

/// The endpoints that were used, the last one first.
///
/// # Errors
/// [`RunError::BadInput`] if the file in the folder of the history is no list of them.
pub(crate) fn remembered(history: &Path) -> Result<Vec<ChatEndpoint>, RunError> {
    let path = file(history);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(RunError::io(path.display().to_string()))?,
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        RunError::BadInput(format!(
            "{}: not a list of endpoints: {error}; delete the file, and the studio makes another one",
            path.display()
        ))
    })
}

/// Remembers an endpoint that is used.
///
/// # Errors
/// As [`remembered`]; the file cannot be written.
pub(crate) fn remember(history: &Path, used: &ChatEndpoint) -> Result<(), RunError> {
    let mut all = remembered(history)?;
    all.retain(|one| one != used);
    all.insert(0, used.clone());
    all.truncate(MAX_REMEMBERED);
    write_atomically(&file(history), &serde_json::to_vec_pretty(&all)?)
}

fn file(history: &Path) -> PathBuf {
    history.join(FILE)
}

#[cfg(test)]
mod tests {
    use pybench_eval::run::AgentChoice;

    use super::*;

    fn endpoint(address: &str, key_env: Option<&str>) -> ChatEndpoint {
        ChatEndpoint {
            address: address.to_owned(),
            model: "m".to_owned(),
            key_env: key_env.map(str::to_owned),
        }
    }

    fn environment(name: &str) -> Option<String> {
        (name == "MY_KEY").then(|| "sk-secret".to_owned())
    }

    fn refused(address: &str, key_env: Option<&str>) -> String {
        let refused = settings(&endpoint(address, key_env), environment);
        refused.unwrap_err().to_string()
    }

    #[test]
    fn addresses_of_any_machine_are_allowed_without_secrets_in_them() {
        for address in [
            "http://127.0.0.1:8000/v1",
            "http://192.168.0.7:8000/v1",
            "https://api.openai.com/v1/",
        ] {
            assert!(
                settings(&endpoint(address, None), environment).is_ok(),
                "{address}"
            );
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
        ] {
            let error = refused(address, None);
            assert!(
                error.contains("https://api.openai.com/v1"),
                "{address}: {error}"
            );
        }
        let nameless = ChatEndpoint {
            model: " ".to_owned(),
            ..endpoint("http://h/v1", None)
        };
        assert!(settings(&nameless, environment).is_err());
    }

    #[test]
    fn keys_are_named_and_sent_in_secret_only() {
        for address in [
            "https://h/v1",
            "http://localhost:8000/v1",
            "http://127.0.0.1/v1",
            "http://[::1]:8000/v1",
        ] {
            let settings = settings(&endpoint(address, Some("MY_KEY")), environment).unwrap();
            let AgentChoice::Openai { key_env, .. } = &settings.agent else {
                panic!("{settings:?}");
            };
            assert_eq!(key_env.as_deref(), Some("MY_KEY"));
            let saved = serde_json::to_string(&settings).unwrap();
            assert!(!saved.contains("sk-secret"), "{saved}");
        }
        for address in [
            "http://h/v1",
            "http://localhost.h/v1",
            "http://127.0.0.1.h/v1",
        ] {
            let error = refused(address, Some("MY_KEY"));
            assert!(error.contains("over https"), "{address}: {error}");
        }
        // A key instead of a name is not repeated.
        for key in ["sk-secret", "hf_secret", ""] {
            let error = refused("https://h/v1", Some(key));
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_last_endpoints_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("chat");
        assert_eq!(remembered(&history).unwrap(), []);
        let of = |number: usize| endpoint(&format!("http://h{number}/v1"), None);
        for number in (0..=MAX_REMEMBERED).chain([5]) {
            remember(&history, &of(number)).unwrap();
        }
        let all = remembered(&history).unwrap();
        assert_eq!(all.len(), MAX_REMEMBERED);
        assert_eq!((&all[0], &all[1]), (&of(5), &of(MAX_REMEMBERED)));
        std::fs::write(history.join(FILE), "[1]").unwrap();
        let error = remembered(&history).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
