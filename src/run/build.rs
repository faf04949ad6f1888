//! Embeds what a checkout has for users beside the program (recipes, sample files), so that an installed program works
//! without one. A debug build embeds nothing and reads the checkout, so that a change of a recipe needs no compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Folders of the checkout; of `pipelines/recipes` the JSON Schema is left out.
const FOLDERS: [&str; 2] = ["data/samples/files", "pipelines/recipes"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("shipped.rs");
    if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") {
        return fs::write(out, format!("(&{FOLDERS:?}, None)"));
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut code = format!("(&{FOLDERS:?}, Some(&[\n");
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy();
        let path = file.to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(code, "    ({name:?}, include_bytes!({path:?})),");
    }
    code.push_str("]))");
    fs::write(out, code)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // A new file changes its folder.
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if !path.to_string_lossy().ends_with(".schema.json") {
            files.push(path);
        }
    }
    Ok(())
}
