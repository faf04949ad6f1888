//! Sending: repository, large files, one commit, and a look at what came of it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pybench::run::RunError;
use pybench::run::cli::Process;
use tracing::info;

use super::package::bytes;
use super::{Package, Plan, PublishArgs};
use crate::hub::{
    About, Change, Content, Kept, Mode, Refusal, Repository, Sent, Why, until_asked_to_stop,
    xet_program,
};

/// How often a commit is tried.
const TRIES: u32 = 4;
/// Before the second try.
const REST: Duration = Duration::from_millis(800);
/// Most bytes of a card that are read back.
const CARD: usize = 16 << 20;

/// What was done.
#[derive(Clone, Debug)]
pub struct Published {
    page: String,
    commit: String,
    sent: Sent,
    /// Files in the commit itself, and their bytes.
    small: (usize, u64),
    deleted: usize,
    same: usize,
    checked: usize,
    changed: bool,
}

/// Bring a repository to what it is to be. Until the commit, Ctrl-C ends it at once: what was sent stays there
/// unseen. The commit itself and the look at it are seen to their end.
pub(super) async fn send(
    repository: &Repository<'_>,
    package: &Package,
    args: &PublishArgs,
    process: &Process,
) -> Result<Published, RunError> {
    let looking = async {
        let about = open(repository, args.public).await?;
        let tree = repository.tree(&about.sha).await?;
        Ok::<_, RunError>((about, Plan::new(package, &tree)))
    };
    let (about, plan) = until_asked_to_stop(process, looking).await??;
    let mut published = Published {
        page: repository.page(),
        commit: about.sha.clone(),
        sent: Sent::default(),
        small: (0, 0),
        deleted: plan.delete.len(),
        same: plan.same,
        checked: 0,
        changed: !plan.is_done(),
    };
    if published.changed {
        let sending = large_files(repository, &plan, &mut published);
        let (put, by_xet) = until_asked_to_stop(process, sending).await??;
        let message = args.message.clone();
        let message = message.unwrap_or_else(|| format!("Publish {}", package.title));
        let change = Change {
            put,
            delete: plan.delete.iter().map(String::as_str).collect(),
            message: &message,
        };
        let attempt = Attempt {
            repository,
            change: &change,
            parent: &about.sha,
            by_xet,
            process,
        };
        published.commit = commit(&attempt, package, &mut published.sent).await?;
    }
    published.checked = look(repository, package, &published.commit).await?;
    Ok(published)
}

/// Send the large files that the Hub lacks; how it is going to keep each of all, and the program that is to send
/// them with the commit where they are to go by Xet.
async fn large_files<'c>(
    repository: &Repository<'_>,
    plan: &Plan<'c>,
    published: &mut Published,
) -> Result<(Vec<(&'c Content, Mode)>, Option<PathBuf>), RunError> {
    let put = repository.modes(&plan.put).await?;
    let of = |mode: Mode| put.iter().filter(move |(_, m)| *m == mode).map(|(c, _)| *c);
    let large: Vec<&Content> = of(Mode::Large).collect();
    let program = xet_program();
    let sent = repository.send_large(&large, program.is_some(), |content, new| {
        let word = if new { "sent" } else { "there" };
        info!("{word} {} ({})", content.path, bytes(content.size));
    });
    let sent = sent.await?;
    let by_xet = program.filter(|_| sent.is_none());
    published.sent = sent.unwrap_or_else(|| Sent {
        files: large.len(),
        bytes: large.iter().map(|content| content.size).sum(),
        ..Sent::default()
    });
    published.small = (
        of(Mode::Regular).count(),
        of(Mode::Regular).map(|c| c.size).sum(),
    );
    Ok((put, by_xet))
}

/// The repository, created where there is none. Nothing is sent to one that others see and should not.
async fn open(repository: &Repository<'_>, public: bool) -> Result<About, RunError> {
    let shown = repository.shown();
    let (about, new) = match repository.about().await? {
        Some(about) => (about, false),
        None => {
            repository.create(!public).await?;
            let about = repository.about().await?;
            let gone = || RunError::Endpoint(format!("{shown} was created and is not there"));
            (about.ok_or_else(gone)?, true)
        }
    };
    match (about.private, public, new) {
        (false, false, true) => Err(RunError::Endpoint(format!(
            "{shown} was to be private and is public; nothing was sent"
        ))),
        (false, false, false) => Err(RunError::BadInput(format!(
            "{shown} is public; nothing was sent. --public says that this is wanted"
        ))),
        _ => Ok(about),
    }
}

/// A commit to be made.
struct Attempt<'a> {
    repository: &'a Repository<'a>,
    change: &'a Change<'a>,
    parent: &'a str,
    /// The program that sends large files too; otherwise they are there.
    by_xet: Option<PathBuf>,
    process: &'a Process,
}

impl Attempt<'_> {
    /// How often it is made: the program tries again itself.
    fn tries(&self) -> u32 {
        if self.by_xet.is_some() { 1 } else { TRIES }
    }

    /// Make it once.
    async fn once(&self, sent: &mut Sent) -> Result<Result<String, Refusal>, RunError> {
        let (change, parent) = (self.change, self.parent);
        let Some(program) = &self.by_xet else {
            return Ok(self.repository.commit(change, parent).await);
        };
        let tenth = Cell::new(0);
        let told = |done: u64, total: u64| {
            let now = done.saturating_mul(10) / total.max(1);
            if now > tenth.replace(now) {
                info!("{} of {} are there", bytes(done), bytes(total));
            }
        };
        let sending = self.repository.send_by_xet(program, change, parent, told);
        let made = match until_asked_to_stop(self.process, sending).await? {
            Ok(committing) => committing.made().await,
            Err(refusal) => Err(refusal),
        };
        Ok(made.map(|(commit, chunks)| {
            sent.chunks = Some(chunks);
            commit
        }))
    }
}

/// One commit. A commit whose answer is lost may be there, so that the repository is looked at before
/// another try.
async fn commit(
    attempt: &Attempt<'_>,
    package: &Package,
    sent: &mut Sent,
) -> Result<String, RunError> {
    let (repository, parent) = (attempt.repository, attempt.parent);
    let mut tries = 0;
    loop {
        let refusal = match attempt.once(sent).await? {
            Ok(commit) => return Ok(commit),
            Err(refusal) => refusal,
        };
        let lost = matches!(
            refusal.why,
            Why::Conflict | Why::Server(_) | Why::Unreachable | Why::Form | Why::Later(_)
        );
        if !lost {
            return Err(refusal.into());
        }
        if let Some(commit) = newer(repository, package, parent).await? {
            return Ok(commit);
        }
        tries += 1;
        if tries >= attempt.tries() || matches!(refusal.why, Why::Conflict | Why::Form) {
            return Err(refusal.into());
        }
        tokio::time::sleep(rest(&refusal, tries)).await;
    }
}

fn rest(refusal: &Refusal, tries: u32) -> Duration {
    match refusal.why {
        Why::Later(Some(after)) => after.min(Duration::from_secs(60)),
        _ => REST * 2_u32.pow(tries - 1),
    }
}

/// The newest commit, where it is another than `parent` and all is there; a conflict where somebody else
/// made it.
async fn newer(
    repository: &Repository<'_>,
    package: &Package,
    parent: &str,
) -> Result<Option<String>, RunError> {
    let about = repository.about().await?;
    let Some(about) = about.filter(|about| about.sha != parent) else {
        return Ok(None);
    };
    let tree = repository.tree(&about.sha).await?;
    match Plan::new(package, &tree).is_done() {
        true => Ok(Some(about.sha)),
        false => Err(RunError::Conflict(format!(
            "{} was changed by somebody else meanwhile: {} came after {parent}. Nothing of ours is \
             visible; the same command compares anew",
            repository.shown(),
            about.sha
        ))),
    }
}

/// Read back what the repository holds: sizes and hashes of all files, and the card byte by byte.
async fn look(
    repository: &Repository<'_>,
    package: &Package,
    commit: &str,
) -> Result<usize, RunError> {
    let tree: BTreeMap<String, Kept> = repository.tree(commit).await?;
    let plan = Plan::new(package, &tree);
    if !plan.is_done() {
        let wrong = plan.put.iter().map(|content| content.path.as_str());
        let wrong: Vec<&str> = wrong
            .chain(plan.delete.iter().map(String::as_str))
            .collect();
        return Err(RunError::Incomplete(format!(
            "{} has other files than were sent, at {commit}: {}; the same command sends them again",
            repository.shown(),
            wrong
                .iter()
                .take(10)
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
        )));
    }
    let card = repository.file(commit, "README.md", CARD).await?;
    if card != package.card.as_bytes() {
        return Err(RunError::Incomplete(format!(
            "{} shows another README.md than was sent, at {commit}",
            repository.shown()
        )));
    }
    Ok(plan.same)
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.changed {
            writeln!(f, "nothing to send: {} files are there already", self.same)?;
        } else {
            let (small, small_bytes) = self.small;
            writeln!(
                f,
                "sent {} large files ({}; {}) and {small} small ones ({}), deleted {}, left {}",
                self.sent.files,
                bytes(self.sent.bytes),
                match self.sent.chunks {
                    Some(chunks) => format!("by Xet, {} over the network", bytes(chunks)),
                    None => format!("{} more were there", self.sent.there),
                },
                bytes(small_bytes),
                self.deleted,
                self.same
            )?;
        }
        writeln!(
            f,
            "read back: {} files have their sizes and hashes",
            self.checked
        )?;
        writeln!(f, "{} at {}", self.page, self.commit)
    }
}
