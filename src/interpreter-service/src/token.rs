//! Access tokens. They are compared by digest, all of them each time, so that the time reveals nothing.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use blake3::Hash;

/// Minimum length of a token.
const MIN_TOKEN: usize = 16;
/// Maximum size of a token file, bytes.
const MAX_FILE: usize = 64 << 10;
/// Maximum length of a token, bytes.
const MAX_TOKEN: usize = 1024;

/// The accepted tokens, stored as digests, with the names of their clients.
#[derive(Clone)]
pub struct Tokens(Vec<(String, Hash)>);

/// Why tokens could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A line is not a valid token.
    #[error(
        "{0}, line {1}: expected `TOKEN` or `NAME TOKEN`; a token has at least {MIN_TOKEN} letters, digits, `-`, `_`, `.` or `=`"
    )]
    Line(String, usize),
    /// There is no token, or the file is too large.
    #[error("{0}: expected at least one token and at most {MAX_FILE} bytes")]
    Size(String),
    /// Reading or writing failed.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_set().entries(names).finish()
    }
}

impl Tokens {
    /// Parses one token per line, optionally preceded by a client name; `#` starts a comment.
    ///
    /// # Errors
    /// [`TokensError`] names the line in `source`.
    pub fn parse(text: &str, source: &str) -> Result<Self, TokensError> {
        if text.len() > MAX_FILE {
            return Err(TokensError::Size(source.to_owned()));
        }
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (name, token) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(token), None, _) => (format!("client {}", tokens.len() + 1), token),
                (Some(name), Some(token), None) => (name.to_owned(), token),
                _ => return Err(TokensError::Line(source.to_owned(), number + 1)),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
            if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) || !token.chars().all(plain) {
                return Err(TokensError::Line(source.to_owned(), number + 1));
            }
            tokens.push((name, blake3::hash(token.as_bytes())));
        }
        match tokens.is_empty() {
            true => Err(TokensError::Size(source.to_owned())),
            false => Ok(Self(tokens)),
        }
    }

    /// Reads a token file. If it is missing, creates it with a new random token, readable only by its owner.
    /// The second value says whether the file was created.
    pub fn from_file(path: &Path) -> Result<(Self, bool), TokensError> {
        let name = path.display().to_string();
        let failed = |error| TokensError::Io(name.clone(), error);
        let mut options = std::fs::OpenOptions::new();
        let made = match options.write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                writeln!(file, "{}", random_secret()).map_err(failed)?;
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(error)),
        };
        let size = std::fs::metadata(path).map_err(failed)?.len();
        if size > MAX_FILE as u64 {
            return Err(TokensError::Size(name));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Ok((Self::parse(&text, &name)?, made))
    }

    /// The client that a token belongs to.
    pub(super) fn client(&self, token: &str) -> Option<&str> {
        let digest = blake3::hash(token.as_bytes());
        // `Hash` compares in constant time; the loop does not stop early.
        let mut found = None;
        for (name, known) in &self.0 {
            if *known == digest {
                found = Some(name.as_str());
            }
        }
        found
    }
}

/// Whether two secrets are equal, in time that does not depend on where they differ.
pub(super) fn constant_time_eq(a: &str, b: &str) -> bool {
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

/// A random secret of 256 bits; also used for IDs that cannot be guessed.
pub(super) fn random_secret() -> String {
    let bytes: [u8; 32] = rand::random();
    blake3::Hash::from_bytes(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_identifies_its_client() {
        let text = "# ours\nalice 0123456789abcdef\n\nfedcba9876543210 # chat\n";
        let tokens = Tokens::parse(text, "t").unwrap();
        assert_eq!(tokens.client("0123456789abcdef"), Some("alice"));
        assert_eq!(tokens.client("fedcba9876543210"), Some("client 2"));
        for wrong in ["", "alice", "0123456789abcdeF", "0123456789abcdef "] {
            assert_eq!(tokens.client(wrong), None);
        }
        assert!(!format!("{tokens:?}").contains("0123"));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("short\n", 1),
            ("# x\na b c\n", 2),
            ("name tok€n_tok€n_tok€n", 1),
        ] {
            let error = Tokens::parse(text, "t.txt").unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("t.txt, line {line}:")),
                "{error}"
            );
        }
        assert!(Tokens::parse("# none\n", "t").is_err());
    }

    #[test]
    fn a_missing_file_is_created_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let (tokens, made) = Tokens::from_file(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(made && tokens.client(text.trim()).is_some());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!Tokens::from_file(&path).unwrap().1);
    }

    #[test]
    fn fuzz_tokens() {
        bolero::check!()
            .with_type::<String>()
            .for_each(|text: &String| {
                if let Ok(tokens) = Tokens::parse(text, "t") {
                    assert_eq!(tokens.client(""), None);
                }
            });
    }
}
