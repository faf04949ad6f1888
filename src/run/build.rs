//! Embeds what a checkout has for users beside the program (recipes, sample files), so that an installed program works
//! without one.

use std::path::Path;
use std::{env, io};

mod embed;

/// Folders of the checkout; of `pipelines/recipes` the JSON Schema is left out.
const FOLDERS: [&str; 2] = ["data/samples/files", "pipelines/recipes"];

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default() + "/../..";
    let wanted = |path: &str| !path.ends_with(".schema.json");
    let files = embed::embedded(Path::new(&root), &FOLDERS, wanted, "include_bytes")?;
    embed::write("shipped.rs", &format!("(&{FOLDERS:?}, {files})"))
}
