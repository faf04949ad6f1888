//! Embeds PyBench's task files (`pipelines/suites/pybench/{tasks,regenerated}/*.toml`), so that installed
//! programs work without the repository.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    embed("../suites/pybench/tasks", "pybench.rs")?;
    embed("../suites/pybench/regenerated", "pybench-regenerated.rs")
}

/// Writes a slice of (path below `folder`, content) of every TOML file there.
fn embed(folder: &str, name: &str) -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(folder);
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut code = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy();
        let path = file.to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(code, "    ({name:?}, include_str!({path:?})),");
    }
    code.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join(name), code)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            // A new file in a folder changes the folder, which cargo watches through the root.
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
