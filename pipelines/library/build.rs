//! Embeds the task library (`keywords.toml`, `abilities.toml`, `templates/**/*.toml`), so that installed
//! programs work without the repository.

use std::path::Path;
use std::{env, io};

#[path = "../../src/run/embed.rs"]
mod embed;

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let paths = ["abilities.toml", "keywords.toml", "templates"];
    let wanted = |path: &str| path.ends_with(".toml");
    let files = embed::embedded(Path::new(&root), &paths, wanted, "include_str")?;
    embed::write("library.rs", &files)
}
