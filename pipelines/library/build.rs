//! Embeds the task library (`keywords.toml`, `abilities.toml`, `templates/**/*.toml`), so that installed
//! programs work without the repository. A debug build embeds nothing and reads the files of the checkout, so that a
//! change of a template needs no compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("library.rs");
    if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") {
        return fs::write(out, "None");
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut files = vec![root.join("abilities.toml"), root.join("keywords.toml")];
    collect(&root.join("templates"), &mut files)?;
    files.sort();
    let mut code = String::from("Some(&[\n");
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy();
        let path = file.to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(code, "    ({name:?}, include_str!({path:?})),");
    }
    code.push_str("])");
    fs::write(out, code)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // A new file changes its folder.
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}
