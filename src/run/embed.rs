//! Embeds files of the checkout into a program. The build scripts of `pybench-run` and `pybench-library` include this
//! file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Writes Rust code for `Option<&[(&str, _)]>`: the files at and below `paths`, by their path from `root`, each included
/// by the macro `include`. A debug build embeds nothing and reads the checkout, so that a change of a file needs no
/// compiler.
pub(crate) fn embedded(
    root: &Path,
    paths: &[&str],
    wanted: fn(&str) -> bool,
    include: &str,
) -> io::Result<String> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") {
        return Ok("None".to_owned());
    }
    let mut files = Vec::new();
    for path in paths {
        collect(root.join(path), wanted, &mut files)?;
    }
    files.sort();
    let mut code = String::from("Some(&[\n");
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
        let path = file.to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(code, "    ({name:?}, {include}!({path:?})),");
    }
    Ok(code + "])")
}

/// Writes a file that the crate includes from `OUT_DIR`.
pub(crate) fn write(name: &str, code: &str) -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join(name), code)
}

fn collect(path: PathBuf, wanted: fn(&str) -> bool, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        // A new file changes its folder.
        println!("cargo:rerun-if-changed={}", path.display());
        for entry in fs::read_dir(path)? {
            collect(entry?.path(), wanted, files)?;
        }
    } else if wanted(&path.to_string_lossy()) {
        println!("cargo:rerun-if-changed={}", path.display());
        files.push(path);
    }
    Ok(())
}
