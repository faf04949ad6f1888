//! Makes the Python environment where it is missing, with the script that `just setup` runs too.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::InterpreterError;
use super::environment::requirements;

/// The script and what it reads from its own folder.
const FILES: [(&str, &str); 3] = [
    ("environment", include_str!("../python/environment")),
    ("prepare.py", include_str!("../python/prepare.py")),
    ("requirements.lock", requirements()),
];

/// Makes the environment, or finds that it is complete. Takes a minute, and 1.6 GB of the machine's cache. `say` gets
/// the lines that the script prints.
///
/// The script ends with this process on Ctrl-C, which the terminal sends to both. After a kill it finishes the
/// environment for the next command.
///
/// # Errors
/// [`InterpreterError::Unavailable`] with what the script printed last; I/O errors of the temporary folder.
pub async fn make_environment(uv: &Path, say: impl Fn(&str)) -> Result<(), InterpreterError> {
    let io = |context: &str| {
        let context = context.to_owned();
        |source| InterpreterError::Io { context, source }
    };
    let folder = tempfile::tempdir().map_err(io("a temporary folder"))?;
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).map_err(io("a temporary folder"))?;
    }
    let mut script = Command::new("sh")
        .arg(folder.path().join(FILES[0].0))
        .env("UV", uv)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io("sh"))?;
    let mut last = String::new();
    if let Some(stderr) = script.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await.map_err(io("sh"))? {
            say(line.trim_start_matches("setup: "));
            last = line;
        }
    }
    let status = script.wait().await.map_err(io("sh"))?;
    match status.success() {
        true => Ok(()),
        false => Err(InterpreterError::Unavailable(format!(
            "the Python environment could not be made ({status}): {last}"
        ))),
    }
}
