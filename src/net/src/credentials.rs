//! Credentials of services, from environment variables and from the files that the services' own tools write.
//! Credentials are never printed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_run::{Failure, FailureKind};
use reqwest::RequestBuilder;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// Maximum size of a credentials file, bytes.
const MAX_FILE: u64 = 64 << 10;

/// Authentication of requests.
#[derive(Clone, Debug)]
pub enum Auth {
    None,
    Bearer(SecretString),
    Basic(String, SecretString),
}

impl Auth {
    /// Adds the authentication to a request.
    pub fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::None => request,
            Self::Bearer(token) => request.bearer_auth(token.expose_secret()),
            Self::Basic(user, key) => request.basic_auth(user, Some(key.expose_secret())),
        }
    }

    /// Replaces the secret in a text that came from outside.
    pub fn redact(&self, text: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            Self::Bearer(secret) | Self::Basic(_, secret) => {
                text.replace(secret.expose_secret(), "[secret]")
            }
        }
    }

    /// The bearer token, for another program of this project.
    pub fn bearer(&self) -> Option<&str> {
        match self {
            Self::Bearer(token) => Some(token.expose_secret()),
            _ => None,
        }
    }

    /// Whether there are credentials.
    pub fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }
}

type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Source of credentials: the environment variables of a process.
#[derive(Clone)]
pub struct Credentials(Arc<Variables>);

impl Credentials {
    pub fn of_this_process() -> Self {
        Self(Arc::new(|name| std::env::var(name).ok()))
    }

    /// Uses only these variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = variables.iter();
        let owned: std::collections::HashMap<String, String> = owned
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self(Arc::new(move |name| owned.get(name).cloned()))
    }

    /// A non-empty environment variable.
    pub fn variable(&self, name: &str) -> Option<String> {
        let value = (self.0)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let named = self.variable(variable).map(PathBuf::from);
        named.or_else(|| Some(Path::new(&self.variable("HOME")?).join(below_home)))
    }

    /// Authentication for GitHub: `GITHUB_TOKEN`, or none.
    ///
    /// # Errors
    /// A malformed token.
    pub fn github(&self) -> Result<Auth, Failure> {
        match self.variable("GITHUB_TOKEN") {
            Some(token) => bearer(token, "GITHUB_TOKEN"),
            None => Ok(Auth::None),
        }
    }

    /// Authentication for the Hugging Face Hub: `HF_TOKEN`, or the token file of the Hub's tools, or none.
    ///
    /// # Errors
    /// A malformed token.
    pub fn hub(&self) -> Result<Auth, Failure> {
        if let Some(token) = self.variable("HF_TOKEN") {
            return bearer(token, "HF_TOKEN");
        }
        let caches = self.folder("XDG_CACHE_HOME", ".cache");
        let home = self.variable("HF_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(caches?.join("huggingface")));
        let named = self.variable("HF_TOKEN_PATH").map(PathBuf::from);
        let path = named.or_else(|| Some(home?.join("token")));
        let token = path.as_deref().and_then(read);
        match (path, token) {
            (Some(path), Some(token)) if !token.trim().is_empty() => {
                bearer(token.trim().to_owned(), &path.display().to_string())
            }
            _ => Ok(Auth::None),
        }
    }

    /// Authentication for Kaggle: `KAGGLE_USERNAME` and `KAGGLE_KEY`, or the file `kaggle.json`, or none.
    ///
    /// # Errors
    /// A malformed file or key.
    pub fn kaggle(&self) -> Result<Auth, Failure> {
        let named = (
            self.variable("KAGGLE_USERNAME"),
            self.variable("KAGGLE_KEY"),
        );
        if let (Some(user), Some(key)) = named {
            return basic(user, key, "KAGGLE_USERNAME and KAGGLE_KEY");
        }
        let folder = self.folder("KAGGLE_CONFIG_DIR", ".kaggle");
        let Some(path) = folder.map(|folder| folder.join("kaggle.json")) else {
            return Ok(Auth::None);
        };
        let Some(text) = read(&path) else {
            return Ok(Auth::None);
        };
        let place = path.display().to_string();
        match serde_json::from_str::<KaggleFile>(&text) {
            Ok(file) => basic(file.username, file.key, &place),
            // The message of serde may quote the secret.
            Err(_) => Err(invalid_credentials(&place)),
        }
    }
}

#[derive(Deserialize)]
struct KaggleFile {
    username: String,
    key: String,
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

fn bearer(token: String, place: &str) -> Result<Auth, Failure> {
    match is_valid(&token) {
        true => Ok(Auth::Bearer(token.into())),
        false => Err(invalid_credentials(place)),
    }
}

fn basic(user: String, key: String, place: &str) -> Result<Auth, Failure> {
    match is_valid(&user) && is_valid(&key) && !user.contains(':') {
        true => Ok(Auth::Basic(user, key.into())),
        false => Err(invalid_credentials(place)),
    }
}

/// Whether a text is valid in a header.
fn is_valid(text: &str) -> bool {
    !text.is_empty() && text.len() < 10_000 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn invalid_credentials(place: &str) -> Failure {
    let text = format!("{place} does not contain valid credentials; correct or remove it");
    Failure::new(FailureKind::Item, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(auth: Result<Auth, Failure>) -> String {
        match auth {
            Ok(Auth::None) => "none".to_owned(),
            Ok(Auth::Bearer(token)) => token.expose_secret().to_owned(),
            Ok(Auth::Basic(user, key)) => format!("{user}:{}", key.expose_secret()),
            Err(failure) => failure.detail,
        }
    }

    #[test]
    fn variables_take_precedence_over_files() {
        let home = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(".kaggle/kaggle.json", r#"{"username": "u", "key": "k"}"#);
        put(".cache/huggingface/token", "hf_file\n");
        put("elsewhere/token", "hf_elsewhere");
        put(
            "broken/kaggle.json",
            "{\"username\": \"u\", \"key\": 5secret}",
        );
        let (at, elsewhere) = (
            home.path().display().to_string(),
            home.path().join("elsewhere"),
        );
        let (elsewhere, broken) = (elsewhere.display().to_string(), home.path().join("broken"));
        let broken = broken.display().to_string();
        let of = |more: &[(&str, &str)]| {
            let mut variables = vec![("HOME", at.as_str())];
            variables.extend(more);
            Credentials::of(&variables)
        };
        assert_eq!(shown(of(&[]).kaggle()), "u:k");
        assert_eq!(shown(of(&[]).hub()), "hf_file");
        assert_eq!(shown(of(&[]).github()), "none");
        assert_eq!(shown(Credentials::of(&[]).kaggle()), "none");
        assert_eq!(shown(Credentials::of(&[]).hub()), "none");
        let named = of(&[
            ("KAGGLE_USERNAME", "v"),
            ("KAGGLE_KEY", "w"),
            ("HF_TOKEN", " t "),
            ("GITHUB_TOKEN", "g"),
        ]);
        assert_eq!(shown(named.kaggle()), "v:w");
        assert_eq!(shown(named.hub()), "t");
        assert_eq!(shown(named.github()), "g");
        assert_eq!(shown(of(&[("HF_HOME", &elsewhere)]).hub()), "hf_elsewhere");
        let said = shown(of(&[("KAGGLE_CONFIG_DIR", &broken)]).kaggle());
        assert!(
            said.contains("kaggle.json") && !said.contains("secret"),
            "{said}"
        );
        let said = shown(of(&[("HF_TOKEN", "a\nsecret")]).hub());
        assert!(
            said.contains("HF_TOKEN") && !said.contains("secret"),
            "{said}"
        );
        let debug = format!("{:?}", named.kaggle().unwrap());
        assert!(!debug.contains('w'), "{debug}");
    }

    #[test]
    fn fuzz_credentials_files() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().display().to_string();
        bolero::check!().for_each(|bytes: &[u8]| {
            std::fs::write(home.path().join("kaggle.json"), bytes).unwrap();
            std::fs::write(home.path().join("token"), bytes).unwrap();
            let from = Credentials::of(&[("KAGGLE_CONFIG_DIR", &at), ("HF_HOME", &at)]);
            let (_, _) = (from.kaggle(), from.hub());
        });
    }
}
