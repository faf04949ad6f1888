//! Makes one commit on the Hub: see the crate's documentation for what it reads and writes.

use std::error::Error;
use std::io::{BufRead as _, Read as _, Write as _};
use std::process::ExitCode;

use hf_hub::progress::{ProgressEvent, ProgressHandler, UploadEvent};
use hf_hub::repository::{CommitOperation, RepoType};
use hf_hub::{HFClient, HFError, HFRepository};
use pybench_xet::{Event, Job};

#[tokio::main]
async fn main() -> ExitCode {
    let done = match read() {
        Ok(job) => commit(&job).await,
        Err(said) => Event::Refused {
            status: None,
            after: None,
            said,
        },
    };
    tell(&done);
    match done {
        Event::Committed { .. } => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The job. Whoever gave it holds the input open: when that ends, nobody wants the commit any more.
fn read() -> Result<Job, String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_line(&mut text);
    read.map_err(|error| error.to_string())?;
    let job = serde_json::from_str(&text).map_err(|error| format!("the job: {error}"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    Ok(job)
}

/// Nobody listening is no reason to stop: whoever asked is told in the end, or is gone.
fn tell(event: &Event) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, event);
    let _ = writeln!(out);
    let _ = out.flush();
}

async fn commit(job: &Job) -> Event {
    let made = match HFClient::new() {
        Ok(hub) if job.dataset => one(hub.dataset(&job.owner, &job.name), job).await,
        Ok(hub) => one(hub.model(&job.owner, &job.name), job).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(commit) => Event::Committed { commit },
        Err(error) => refused(&error),
    }
}

async fn one<T: RepoType>(
    repository: HFRepository<T>,
    job: &Job,
) -> Result<Option<String>, HFError> {
    let put = job
        .put
        .iter()
        .map(|put| CommitOperation::add_file(&put.path, &put.file));
    let delete = job.delete.iter().map(CommitOperation::delete);
    let made = repository
        .create_commit()
        .operations(put.chain(delete).collect::<Vec<_>>())
        .commit_message(job.message.clone())
        .parent_commit(job.parent.clone())
        .progress(Teller)
        .send();
    Ok(made.await?.commit_oid)
}

struct Teller;

impl ProgressHandler for Teller {
    fn on_progress(&self, event: &ProgressEvent) {
        match event {
            ProgressEvent::Upload(UploadEvent::Progress {
                bytes_completed: done,
                total_bytes: total,
                transfer_bytes_completed: sent,
                ..
            }) => tell(&Event::Sending {
                done: *done,
                total: *total,
                sent: *sent,
            }),
            ProgressEvent::Upload(UploadEvent::Committing) => tell(&Event::Committing),
            _ => {}
        }
    }
}

/// The status of a refusal: that of the Hub, or of the store of chunks behind it.
fn refused(error: &HFError) -> Event {
    let (context, after) = match error {
        HFError::Http { context }
        | HFError::AuthRequired { context }
        | HFError::Forbidden { context }
        | HFError::Conflict { context } => (Some(context), None),
        HFError::RateLimited {
            retry_after,
            context,
        } => (Some(context), *retry_after),
        HFError::RepoNotFound { context, .. }
        | HFError::RevisionNotFound { context, .. }
        | HFError::EntryNotFound { context, .. } => (context.as_ref(), None),
        _ => (None, None),
    };
    let said = context.map(|context| context.server_message.clone().unwrap_or_default());
    Event::Refused {
        status: context.map(|context| context.status.as_u16()),
        after: after.map(|after| after.as_secs()),
        said: said.unwrap_or_else(|| causes(error)),
    }
}

/// An error and what is behind it.
fn causes(error: &HFError) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        let said = cause.to_string();
        // Many errors say what is behind them themselves.
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        behind = cause.source();
    }
    text
}
