//! Makes one commit on the Hub. The crate documentation describes the protocol.

use std::error::Error;
use std::io::{BufRead as _, Read as _, Write as _};
use std::process::ExitCode;

use hf_hub::progress::{ProgressEvent, ProgressHandler, UploadEvent};
use hf_hub::repository::{CommitOperation, RepoType};
use hf_hub::{HFClient, HFError, HFRepository};
use pybench_xet_protocol::{CommitJob, Event};

#[tokio::main]
async fn main() -> ExitCode {
    let result = match read_job() {
        Ok(job) => commit(&job).await,
        Err(said) => Event::Refused {
            status: None,
            after: None,
            said,
        },
    };
    send(&result);
    match result {
        Event::Committed { .. } => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Read the job. The parent process keeps standard input open; when it is closed, this process exits.
fn read_job() -> Result<CommitJob, String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().read_line(&mut text);
    read.map_err(|error| error.to_string())?;
    let job = serde_json::from_str(&text).map_err(|error| format!("invalid job: {error}"))?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    Ok(job)
}

/// Write an event. Errors are ignored: if the parent process is gone, standard input is closed as well.
fn send(event: &Event) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, event);
    let _ = writeln!(out);
    let _ = out.flush();
}

async fn commit(job: &CommitJob) -> Event {
    let made = match HFClient::new() {
        Ok(hub) if job.dataset => create_commit(hub.dataset(&job.owner, &job.name), job).await,
        Ok(hub) => create_commit(hub.model(&job.owner, &job.name), job).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(commit) => Event::Committed { commit },
        Err(error) => failed(&error),
    }
}

async fn create_commit<T: RepoType>(
    repository: HFRepository<T>,
    job: &CommitJob,
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
        .progress(ProgressReporter)
        .send();
    Ok(made.await?.commit_oid)
}

struct ProgressReporter;

impl ProgressHandler for ProgressReporter {
    fn on_progress(&self, event: &ProgressEvent) {
        match event {
            ProgressEvent::Upload(UploadEvent::Progress {
                bytes_completed: done,
                total_bytes: total,
                transfer_bytes_completed: sent,
                ..
            }) => send(&Event::Sending {
                done: *done,
                total: *total,
                sent: *sent,
            }),
            ProgressEvent::Upload(UploadEvent::Committing) => send(&Event::Committing),
            _ => {}
        }
    }
}

/// Convert an error of the Hub, or of its chunk store, to an event.
fn failed(error: &HFError) -> Event {
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

/// The message of an error and of its sources.
fn causes(error: &HFError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // Many errors already include the message of their source.
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        source = cause.source();
    }
    text
}
