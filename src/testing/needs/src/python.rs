//! Python environments in which tests run programs of others.

use std::fs::DirEntry;
use std::path::PathBuf;
use std::process::Command;

use crate::skip;

/// The interpreter of the environment `src/testing/environments/NAME.lock`, which is made if it does not exist.
/// `None`, and the test is skipped, if it cannot be made.
pub fn environment(name: &str) -> Option<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../environments/make");
    made(Command::new(script).arg(name))
}

/// A program (`python` or `torchrun`) with that environment and the PyTorch of `training/setup`. `None`, and the test is
/// skipped, if it cannot be made.
pub fn with_torch(name: &str, program: &str) -> Option<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../torch/make");
    made(Command::new(script).args([name, program]))
}

/// A file that a package of that environment has, by its path in `site-packages`.
pub fn package_file(name: &str, path: &str) -> Option<PathBuf> {
    let python = environment(name)?;
    let folders = python.parent()?.parent()?.join("lib").read_dir().ok()?;
    let inside = |folder: DirEntry| folder.path().join("site-packages").join(path);
    let mut files = folders.flatten().map(inside);
    Some(
        files
            .find(|file| file.exists())
            .expect("the package has it"),
    )
}

/// The path that a set-up script prints. `None`, and the test is skipped, if it fails.
pub fn made(script: &mut Command) -> Option<PathBuf> {
    let name = script.get_program().to_owned();
    let output = match script.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            skip::missing_tool(format_args!("{}: {}", name.display(), said.trim()));
            return None;
        }
        Err(error) => {
            skip::missing_tool(format_args!("{}: {error}", name.display()));
            return None;
        }
    };
    Some(String::from_utf8_lossy(&output.stdout).trim().into())
}
