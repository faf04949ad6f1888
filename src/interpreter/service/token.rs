//! Tokens: who may ask. Compared by digest, every one each time, so that the time taken says nothing.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use blake3::Hash;

/// Shortest token accepted.
const SHORTEST: usize = 16;
/// Largest file of tokens and longest token, bytes.
const MAX_FILE: usize = 64 << 10;
const MAX_TOKEN: usize = 1024;

/// The clients that may ask. Holds digests, not tokens.
#[derive(Clone)]
pub struct Tokens(Vec<(String, Hash)>);

/// Why tokens could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A line is no token.
    #[error(
        "{0}, line {1}: expected a token or `name token`, the token with at least {SHORTEST} letters, digits, `-`, `_`, `.` or `=`"
    )]
    Line(String, usize),
    /// There is none, or the file is too large.
    #[error("{0}: expected between one token and {MAX_FILE} bytes of them")]
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
    /// One token a line, a client's name before it if it has one; `#` begins a comment.
    ///
    /// # Errors
    /// [`TokensError`] names the line of `source`.
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
            if !(SHORTEST..=MAX_TOKEN).contains(&token.len()) || !token.chars().all(plain) {
                return Err(TokensError::Line(source.to_owned(), number + 1));
            }
            tokens.push((name, blake3::hash(token.as_bytes())));
        }
        match tokens.is_empty() {
            true => Err(TokensError::Size(source.to_owned())),
            false => Ok(Self(tokens)),
        }
    }

    /// Read a file of tokens; where there is none, one is made with a fresh token that only its owner
    /// can read. The second value says whether that happened.
    pub fn from_file(path: &Path) -> Result<(Self, bool), TokensError> {
        let name = path.display().to_string();
        let failed = |error| TokensError::Io(name.clone(), error);
        let mut options = std::fs::OpenOptions::new();
        let made = match options.write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                writeln!(file, "{}", fresh()).map_err(failed)?;
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
        // `Hash` compares in constant time; no early end.
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
pub(super) fn same(a: &str, b: &str) -> bool {
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

/// A new secret of 256 bits, which is also a name that cannot be guessed.
pub(super) fn fresh() -> String {
    let bytes: [u8; 32] = rand::random();
    blake3::Hash::from_bytes(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_apart() {
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
    fn bad_files_name_their_line() {
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
    fn a_missing_file_is_made_for_its_owner_alone() {
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
