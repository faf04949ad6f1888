//! Fetches the repository of a benchmark or task set with git at a pinned commit and verifies every file.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use pybench_run::{NewFolder, RunError};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Where the files of a benchmark or task set come from: a public repository at a pinned commit.
#[derive(Debug)]
pub struct Origin {
    /// URL of the repository.
    pub repository: &'static str,
    pub commit: &'static str,
    /// Files that are needed, as globs; empty for all.
    pub files: &'static [&'static str],
    /// What the authors say about the license of their data and code.
    pub license: &'static str,
    /// Folder in the cache.
    pub cache: &'static str,
}

/// The user's own checkout of a benchmark or task set, `$PYBENCH_SUITES/<name>`, if the variable is set.
pub fn own_checkout(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYBENCH_SUITES").filter(|value| !value.is_empty())?;
    Some(Path::new(&root).join(name))
}

impl Origin {
    /// Folder of the pinned checkout in the cache.
    pub fn checkout_dir(&self, cache: &Path) -> PathBuf {
        cache.join(self.cache).join(self.commit)
    }

    /// Checks out the commit from `repository` into `folder` if it does not exist yet, and compares every file
    /// with its blob. A new checkout appears in `folder` only after it is verified.
    ///
    /// # Errors
    /// [`RunError::Environment`] if git or the network is unavailable; [`RunError::BadInput`] if a file differs
    /// from its blob.
    pub async fn fetch(&self, repository: &str, folder: &Path) -> Result<(), RunError> {
        if !folder.join(".git").is_dir() {
            let io = || RunError::io(folder.display().to_string());
            let new = NewFolder::new(folder).map_err(io())?;
            clone(repository, self.commit, self.files, new.path()).await?;
            verify(new.path(), self.commit, self.files).await?;
            return new.finish().map_err(io());
        }
        verify(folder, self.commit, self.files).await
    }
}

/// Of a repository from which only some files are needed, git asks for their blobs alone where the server can.
async fn clone(
    repository: &str,
    commit: &str,
    files: &[&str],
    folder: &Path,
) -> Result<(), RunError> {
    git(folder, &["init", "--quiet"], "").await?;
    let mut fetch = vec!["fetch", "--quiet", "--depth", "1"];
    if files.is_empty() {
        fetch.push(repository);
    } else {
        git(folder, &["remote", "add", "origin", repository], "").await?;
        let patterns: String = files.iter().map(|file| format!("/{file}\n")).collect();
        let sparse = ["sparse-checkout", "set", "--no-cone", "--stdin"];
        git(folder, &sparse, &patterns).await?;
        fetch.extend(["--filter=blob:none", "origin"]);
    }
    fetch.push(commit);
    git(folder, &fetch, "").await?;
    git(folder, &["checkout", "--quiet", "--detach", commit], "").await?;
    Ok(())
}

/// Whether a path is one of the needed files.
fn wanted(files: &[&str]) -> Result<impl Fn(&str) -> bool + use<>, RunError> {
    let mut set = globset::GlobSetBuilder::new();
    for file in files {
        let glob = globset::GlobBuilder::new(file)
            .literal_separator(true)
            .build();
        set.add(glob.map_err(|error| RunError::Internal(error.to_string()))?);
    }
    let all = files.is_empty();
    let set = set
        .build()
        .map_err(|error| RunError::Internal(error.to_string()))?;
    Ok(move |path: &str| all || set.is_match(path))
}

/// Verifies that the commit is checked out and that every needed file matches its blob.
async fn verify(folder: &Path, commit: &str, files: &[&str]) -> Result<(), RunError> {
    let wrong = |text: String| {
        let folder = folder.display();
        RunError::BadInput(format!(
            "{folder}: {text}; delete this folder and run the command again"
        ))
    };
    let head = git(folder, &["rev-parse", "HEAD"], "").await?;
    if head.trim() != commit {
        return Err(wrong(format!(
            "commit {} is checked out, expected {commit}",
            head.trim()
        )));
    }
    let listed = git(folder, &["ls-tree", "-r", "-z", "HEAD"], "").await?;
    let wanted = wanted(files)?;
    let blobs = listed.split('\0').filter_map(|line| {
        let (meta, path) = line.split_once('\t')?;
        let mut meta = meta.split(' ');
        let (mode, kind, blob) = (meta.next()?, meta.next()?, meta.next()?);
        // The blob of a symlink is its target path; symlinks are not followed.
        (kind == "blob" && mode != "120000" && wanted(path)).then_some((path, blob))
    });
    let (paths, blobs): (Vec<_>, Vec<_>) = blobs.unzip();
    if let Some(path) = paths.iter().find(|path| path.contains('\n')) {
        return Err(wrong(format!(
            "a file name contains a line break: {path:?}"
        )));
    }
    if paths.is_empty() {
        return Err(wrong("the commit has none of the needed files".into()));
    }
    let absent = paths.iter().find(|path| !folder.join(path).is_file());
    if let Some(path) = absent {
        return Err(wrong(format!("{path} is missing")));
    }
    let hash = ["hash-object", "--no-filters", "--stdin-paths"];
    let found = git(folder, &hash, &(paths.join("\n") + "\n")).await?;
    let differs = paths
        .iter()
        .zip(&blobs)
        .zip(found.lines())
        .find(|((_, blob), found)| *blob != found);
    match differs {
        Some(((path, _), _)) => Err(wrong(format!("{path} differs from the commit"))),
        None if found.lines().count() != paths.len() => {
            Err(wrong("git could not hash every file".into()))
        }
        None => Ok(()),
    }
}

/// Runs git in a folder and returns its standard output. Git does not prompt, and hooks are disabled.
async fn git(folder: &Path, arguments: &[&str], input: &str) -> Result<String, RunError> {
    let environment = |text: String| RunError::Environment(format!("git {}: {text}", arguments[0]));
    let mut command = Command::new("git");
    command
        .args([
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.quotePath=false",
            "-c",
            "core.autocrlf=false",
        ])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| environment(error.to_string()))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // If git exits early, its own error message is reported below.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(|error| environment(error.to_string()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(environment(format!(
            "{stderr}; alternatively, use an existing checkout (docs/suites.md)"
        )));
    }
    String::from_utf8(output.stdout).map_err(|_| environment("the output is not UTF-8".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one commit, and that commit.
    async fn repository(folder: &Path) -> String {
        std::fs::create_dir_all(folder.join("data/meta")).unwrap();
        std::fs::write(folder.join("data/meta/task.json"), "[]").unwrap();
        std::fs::write(folder.join("data/如.txt"), "x\r\n").unwrap();
        git(folder, &["init", "--quiet"], "").await.unwrap();
        git(folder, &["add", "."], "").await.unwrap();
        let who = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "commit",
            "--quiet",
            "-m",
            "one",
        ];
        git(folder, &who, "").await.unwrap();
        git(folder, &["rev-parse", "HEAD"], "")
            .await
            .unwrap()
            .trim()
            .to_owned()
    }

    fn origin(commit: &str, files: &'static [&'static str]) -> Origin {
        Origin {
            repository: "",
            commit: commit.to_owned().leak(),
            files,
            license: "",
            cache: "",
        }
    }

    #[tokio::test]
    async fn the_pinned_commit_is_fetched_and_verified() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let commit = repository(source.path()).await;
        let url = format!("file://{}", source.path().display());
        let folder = target.path().join("checkout");
        let pinned = origin(&commit, &[]);
        pinned.fetch(&url, &folder).await.unwrap();
        pinned.fetch(&url, &folder).await.unwrap();
        std::fs::write(folder.join("data/如.txt"), "y").unwrap();
        let error = pinned.fetch(&url, &folder).await.unwrap_err().to_string();
        assert!(error.contains("如.txt differs from the commit"), "{error}");
        let other = origin(&"0".repeat(40), &[]);
        let error = other
            .fetch(&url, &target.path().join("b"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("git fetch"), "{error}");
        assert_eq!(
            std::fs::read_dir(target.path()).unwrap().count(),
            1,
            "no partial checkout is left"
        );
    }

    #[tokio::test]
    async fn only_needed_files_are_checked_out_and_verified() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let commit = repository(source.path()).await;
        let url = format!("file://{}", source.path().display());
        let folder = target.path().join("checkout");
        let pinned = origin(&commit, &["data/*/*.json"]);
        pinned.fetch(&url, &folder).await.unwrap();
        assert!(!folder.join("data/如.txt").exists());
        std::fs::write(folder.join("data/meta/task.json"), "[1]").unwrap();
        let error = pinned.fetch(&url, &folder).await.unwrap_err().to_string();
        assert!(
            error.contains("task.json differs from the commit"),
            "{error}"
        );
        let nothing = origin(&commit, &["none/*"]);
        let error = nothing
            .fetch(&url, &target.path().join("b"))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("none of the needed files"),
            "{error}"
        );
    }
}
