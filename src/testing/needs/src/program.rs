//! Programs that tests write and then run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file.
///
/// Another process does it: a file that this one has open for writing would also be open in processes that other
/// tests fork meanwhile, and could not be executed ("Text file busy").
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success(), "cannot write {path:?}");
}
