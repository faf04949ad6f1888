//! Removes secrets and local paths from the recipe before it is published with a dataset.

use std::path::{Path, PathBuf};

use pybench_run::{ModelChoice, Recipe, RunError, SourceChoice, TaskSetChoice};

/// Placeholder for a removed value.
const PLACEHOLDER: &str = "(left out)";

/// The recipe as TOML, without header values, credentials in URLs and absolute folders.
pub(crate) fn recipe(recipe: &Recipe) -> Result<String, RunError> {
    let mut recipe = recipe.clone();
    let sources = recipe.crawl.sources.iter_mut();
    for source in sources.chain(&mut recipe.crawl.fallback) {
        match source {
            SourceChoice::Local { path, .. } => *path = without_folder(path),
            SourceChoice::Http { urls, .. } => {
                urls.iter_mut()
                    .for_each(|url| *url = without_credentials(url));
            }
            SourceChoice::Pypi { .. }
            | SourceChoice::Arxiv { .. }
            | SourceChoice::Github { .. }
            | SourceChoice::Hub { .. }
            | SourceChoice::Kaggle { .. }
            | SourceChoice::Zenodo { .. } => {}
        }
    }
    for path in &mut recipe.query.apart_from {
        *path = without_folder(path);
    }
    for set in &mut recipe.query.task_sets {
        if let TaskSetChoice::Jsonl { path, folder, .. } = set {
            *path = without_folder(path);
            *folder = folder.as_deref().map(without_folder);
        }
    }
    for teacher in recipe.models_mut() {
        match teacher {
            ModelChoice::Openai {
                base_url, headers, ..
            } => {
                *base_url = without_credentials(base_url);
                for value in headers.values_mut().filter(|value| !value.starts_with('$')) {
                    *value = PLACEHOLDER.to_owned();
                }
            }
            ModelChoice::Embedded { model, .. } | ModelChoice::Checkpoint { model, .. } => {
                *model = without_folder(Path::new(model)).display().to_string();
            }
            ModelChoice::Expert { .. } | ModelChoice::Correction { .. } => {}
        }
    }
    if let Some(wheelhouse) = &mut recipe.interpreter.wheelhouse {
        *wheelhouse = without_folder(wheelhouse);
    }
    toml::to_string_pretty(&recipe)
        .map_err(|error| RunError::io("recipe")(std::io::Error::other(error)))
}

/// Keeps only the last part of an absolute path.
fn without_folder(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) if path.is_absolute() => Path::new("…").join(name),
        _ => path.to_owned(),
    }
}

/// Removes `user:password@` and the query from a URL, because either may contain a key.
fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or(url);
    match url.split_once("://") {
        None => url.to_owned(),
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit('@').next().unwrap_or(authority);
            format!("{scheme}://{host}{path}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_folders_are_removed() {
        let url = without_credentials("https://user:secret@host:8/v1/a@b?key=secret#x");
        assert_eq!(url, "https://host:8/v1/a@b");
        assert_eq!(
            without_folder(Path::new("/home/me/files")),
            Path::new("…/files")
        );
        assert_eq!(without_folder(Path::new("data")), Path::new("data"));
    }
}
