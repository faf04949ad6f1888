//! Embeds the files of `web/dist`, if the web app was built.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let web = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("web");
    let dist = web.join("dist");
    // A path that does not exist would run this, and compile the crate, every time.
    match dist.is_dir() {
        true => println!("cargo:rerun-if-changed=web/dist"),
        false => println!("cargo:rerun-if-changed=web"),
    }
    if let Err(error) = embed(&dist) {
        println!("cargo::error=cannot embed {}: {error}", dist.display());
    }
}

/// Copies the files, so that a build of the app at the same time does no harm, and writes the list of them.
fn embed(dist: &Path) -> std::io::Result<()> {
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let mut text = "&[\n".to_owned();
    for (number, path) in files(dist).into_iter().enumerate() {
        let name = path.strip_prefix(dist).unwrap_or(&path).display();
        let name = name.to_string();
        // What `web/build` notes there is no part of the app.
        if name.starts_with('.') {
            continue;
        }
        let copy = out.join(format!("asset-{number}"));
        fs::copy(&path, &copy)?;
        let _ = writeln!(text, "    ({name:?}, include_bytes!({copy:?}) as &[u8]),");
    }
    fs::write(out.join("assets.rs"), text + "]\n")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}
