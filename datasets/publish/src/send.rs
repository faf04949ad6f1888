//! Uploads a package: creates the repository, uploads large files, makes one commit, and checks the result.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pybench_run::RunError;
use pybench_run::cli::Process;
use tracing::info;

use super::package::bytes;
use super::{Package, Plan, PublishArgs};
use pybench_hub::{
    Change, HubError, HubErrorKind, Mode, RemoteFile, Repository, RepositoryInfo, UploadFile,
    UploadStats, until_interrupted, xet_program,
};

/// Maximum number of attempts at a commit.
const MAX_ATTEMPTS: u32 = 4;
/// Delay before the second attempt. It doubles with each attempt.
const RETRY_DELAY: Duration = Duration::from_millis(800);
/// Maximum size of a card that is read back, in bytes.
const MAX_CARD_BYTES: usize = 16 << 20;

/// Result of publishing.
#[derive(Clone, Debug)]
pub struct Published {
    page: String,
    commit: String,
    sent: UploadStats,
    /// Number of files in the commit itself, and their size in bytes.
    small: (usize, u64),
    deleted: usize,
    unchanged: usize,
    checked: usize,
    changed: bool,
}

/// Make a repository match a package. Before the commit Ctrl-C takes effect immediately; uploaded files stay on the Hub
/// but are not visible. The commit and the check after it are always completed.
pub(super) async fn send(
    repository: &Repository<'_>,
    package: &Package,
    args: &PublishArgs,
    process: &Process,
) -> Result<Published, RunError> {
    let comparing = async {
        let info = open(repository, args.public).await?;
        let tree = repository.tree(&info.sha).await?;
        Ok::<_, RunError>((info, Plan::new(package, &tree)))
    };
    let (info, plan) = until_interrupted(process, comparing).await??;
    let mut published = Published {
        page: repository.page(),
        commit: info.sha.clone(),
        sent: UploadStats::default(),
        small: (0, 0),
        deleted: plan.delete.len(),
        unchanged: plan.unchanged,
        checked: 0,
        changed: !plan.is_empty(),
    };
    if published.changed {
        let uploading = upload_large_files(repository, &plan, &mut published);
        let (put, by_xet) = until_interrupted(process, uploading).await??;
        let message = args.message.clone();
        let message = message.unwrap_or_else(|| format!("Publish {}", package.title));
        let change = Change {
            put,
            delete: plan.delete.iter().map(String::as_str).collect(),
            message: &message,
        };
        let job = CommitJob {
            repository,
            change: &change,
            parent: &info.sha,
            by_xet,
            process,
        };
        published.commit = commit(&job, package, &mut published.sent).await?;
    }
    published.checked = verify(repository, package, &published.commit).await?;
    Ok(published)
}

/// Upload the large files that the Hub does not have. Returns how the Hub stores each file, and the Xet program if the
/// large files are to be uploaded together with the commit.
async fn upload_large_files<'c>(
    repository: &Repository<'_>,
    plan: &Plan<'c>,
    published: &mut Published,
) -> Result<(Vec<(&'c UploadFile, Mode)>, Option<PathBuf>), RunError> {
    let put = repository.modes(&plan.put).await?;
    let of = |mode: Mode| put.iter().filter(move |(_, m)| *m == mode).map(|(c, _)| *c);
    let large: Vec<&UploadFile> = of(Mode::Large).collect();
    let program = xet_program();
    let sent = repository.send_large(&large, program.is_some(), |content, new| {
        let state = if new {
            "uploaded"
        } else {
            "already on the Hub:"
        };
        info!("{state} {} ({})", content.path, bytes(content.size));
    });
    let sent = sent.await?;
    let by_xet = program.filter(|_| sent.is_none());
    published.sent = sent.unwrap_or_else(|| UploadStats {
        files: large.len(),
        bytes: large.iter().map(|content| content.size).sum(),
        ..UploadStats::default()
    });
    published.small = (
        of(Mode::Regular).count(),
        of(Mode::Regular).map(|c| c.size).sum(),
    );
    Ok((put, by_xet))
}

/// Open the repository, or create it. A public repository is an error unless the user allowed it.
async fn open(repository: &Repository<'_>, public: bool) -> Result<RepositoryInfo, RunError> {
    let shown = repository.shown();
    let (info, new) = match repository.about().await? {
        Some(info) => (info, false),
        None => {
            repository.create(!public).await?;
            let info = repository.about().await?;
            let missing = || RunError::Endpoint(format!("{shown} was created but cannot be found"));
            (info.ok_or_else(missing)?, true)
        }
    };
    match (info.private, public, new) {
        (false, false, true) => Err(RunError::Endpoint(format!(
            "{shown} was created as private but is public. Nothing was uploaded; delete the repository or use --public"
        ))),
        (false, false, false) => Err(RunError::BadInput(format!(
            "{shown} is public. Nothing was uploaded; add --public to publish there"
        ))),
        _ => Ok(info),
    }
}

/// A commit to make.
struct CommitJob<'a> {
    repository: &'a Repository<'a>,
    change: &'a Change<'a>,
    parent: &'a str,
    /// The program that uploads large files together with the commit. `None` if they are already uploaded.
    by_xet: Option<PathBuf>,
    process: &'a Process,
}

impl CommitJob<'_> {
    /// Maximum number of attempts. The Xet program retries by itself.
    fn max_attempts(&self) -> u32 {
        if self.by_xet.is_some() {
            1
        } else {
            MAX_ATTEMPTS
        }
    }

    /// Make one attempt.
    async fn attempt(&self, sent: &mut UploadStats) -> Result<Result<String, HubError>, RunError> {
        let (change, parent) = (self.change, self.parent);
        let Some(program) = &self.by_xet else {
            return Ok(self.repository.commit(change, parent).await);
        };
        let tenth = Cell::new(0);
        let on_progress = |done: u64, total: u64| {
            let now = done.saturating_mul(10) / total.max(1);
            if now > tenth.replace(now) {
                info!("uploaded {} of {}", bytes(done), bytes(total));
            }
        };
        let sending = self
            .repository
            .send_by_xet(program, change, parent, on_progress);
        let made = match until_interrupted(self.process, sending).await? {
            Ok(committing) => committing.wait().await,
            Err(error) => Err(error),
        };
        Ok(made.map(|(commit, chunks)| {
            sent.chunks = Some(chunks);
            commit
        }))
    }
}

/// Make the commit, with retries. If the response was lost, the commit may exist, so the repository is checked before
/// the next attempt.
async fn commit(
    job: &CommitJob<'_>,
    package: &Package,
    sent: &mut UploadStats,
) -> Result<String, RunError> {
    let (repository, parent) = (job.repository, job.parent);
    let mut attempts = 0;
    loop {
        let error = match job.attempt(sent).await? {
            Ok(commit) => return Ok(commit),
            Err(error) => error,
        };
        let may_retry = matches!(
            error.kind,
            HubErrorKind::Conflict
                | HubErrorKind::Server(_)
                | HubErrorKind::Unreachable
                | HubErrorKind::UnexpectedResponse
                | HubErrorKind::RateLimited(_)
        );
        if !may_retry {
            return Err(error.into());
        }
        if let Some(commit) = own_commit(repository, package, parent).await? {
            return Ok(commit);
        }
        attempts += 1;
        if attempts >= job.max_attempts()
            || matches!(
                error.kind,
                HubErrorKind::Conflict | HubErrorKind::UnexpectedResponse
            )
        {
            return Err(error.into());
        }
        tokio::time::sleep(retry_delay(&error, attempts)).await;
    }
}

fn retry_delay(error: &HubError, attempts: u32) -> Duration {
    match error.kind {
        HubErrorKind::RateLimited(Some(after)) => after.min(Duration::from_secs(60)),
        _ => RETRY_DELAY * 2_u32.pow(attempts - 1),
    }
}

/// The newest commit, if it is not `parent` and contains all files. A conflict if somebody else made it.
async fn own_commit(
    repository: &Repository<'_>,
    package: &Package,
    parent: &str,
) -> Result<Option<String>, RunError> {
    let info = repository.about().await?;
    let Some(info) = info.filter(|info| info.sha != parent) else {
        return Ok(None);
    };
    let tree = repository.tree(&info.sha).await?;
    match Plan::new(package, &tree).is_empty() {
        true => Ok(Some(info.sha)),
        false => Err(RunError::Conflict(format!(
            "{} was changed by somebody else: commit {} came after {parent}. None of our changes are \
             visible; run the same command again",
            repository.shown(),
            info.sha
        ))),
    }
}

/// Check the repository: sizes and hashes of all files, and the contents of the card.
async fn verify(
    repository: &Repository<'_>,
    package: &Package,
    commit: &str,
) -> Result<usize, RunError> {
    let tree: BTreeMap<String, RemoteFile> = repository.tree(commit).await?;
    let plan = Plan::new(package, &tree);
    if !plan.is_empty() {
        let wrong = plan.put.iter().map(|content| content.path.as_str());
        let wrong: Vec<&str> = wrong
            .chain(plan.delete.iter().map(String::as_str))
            .collect();
        return Err(RunError::Incomplete(format!(
            "{} at {commit} differs from what was uploaded: {}; run the same command again",
            repository.shown(),
            wrong
                .iter()
                .take(10)
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    let card = repository.file(commit, "README.md", MAX_CARD_BYTES).await?;
    if card != package.card.as_bytes() {
        return Err(RunError::Incomplete(format!(
            "{} at {commit} has another README.md than was uploaded; run the same command again",
            repository.shown()
        )));
    }
    Ok(plan.unchanged)
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.changed {
            writeln!(
                f,
                "nothing to upload: all {} files are unchanged",
                self.unchanged
            )?;
        } else {
            let (small, small_bytes) = self.small;
            writeln!(
                f,
                "uploaded {} large files ({}; {}) and {small} small files ({}), deleted {}, unchanged {}",
                self.sent.files,
                bytes(self.sent.bytes),
                match self.sent.chunks {
                    Some(chunks) => format!("by Xet, {} sent over the network", bytes(chunks)),
                    None => format!("{} more were already on the Hub", self.sent.there),
                },
                bytes(small_bytes),
                self.deleted,
                self.unchanged
            )?;
        }
        writeln!(
            f,
            "verified: sizes and hashes of {} files match",
            self.checked
        )?;
        writeln!(f, "{} at {}", self.page, self.commit)
    }
}
