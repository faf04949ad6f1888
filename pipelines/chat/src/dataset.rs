//! A conversation as a row of a dataset, in a folder of the history.
//!
//! Rows have the columns of other datasets as far as they apply, and `provenance` is `chat`. Where a task is known, its checks
//! decide whether the conversation becomes a row.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pybench_datasets::Row;
use pybench_datasets::row::{file_kind, tools};
use pybench_datasets::scrub::Scrubber;
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Outcome, Role, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::entry::{Entry, InputFile};
use crate::grade::{Graded, graded};
use crate::live::{Event, Live};
use crate::transcript::Next;

/// Folder of the rows, in that of the history.
pub const FOLDER: &str = "dataset";
/// File of the rows.
const ROWS: &str = "rows.jsonl";
/// Folder of the files that people put into the conversations.
const FILES: &str = "files";

/// A row of a conversation without a task.
#[derive(Serialize)]
struct ChatRow {
    messages: Vec<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
    /// The model that wrote the replies.
    teacher: String,
    format: String,
    files: Vec<ChatRowFile>,
    /// Number of replacements that the scrubber made.
    scrubbed: u32,
}

/// A file that a person put into `./data`.
#[derive(Serialize)]
struct ChatRowFile {
    name: String,
    blake3: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

/// Adds the conversation to the dataset of its history, without secrets. It has to be accepted by the checks of its task, if
/// there is one; returns their verdict. The row is on the disk when this returns.
///
/// # Errors
/// [`RunError::BadInput`] if the model has not ended its answer, or the checks reject it; as
/// [`grade`](crate::grade::grade); the dataset cannot be written.
pub async fn add(
    conversation: &mut Conversation,
    live: &Live,
) -> Result<Option<Verdict>, RunError> {
    check_ended(conversation)?;
    let has_task = conversation.settings().task.is_some();
    let graded = match has_task {
        true => Some(graded(conversation, live).await?),
        false => None,
    };
    if let Some(Graded { verdict, .. }) = &graded {
        check_accepted(verdict)?;
    }
    let id = Digest::of_json(&messages(conversation));
    let scrubber = Scrubber::of_machine();
    let mut row = match &graded {
        Some(graded) => serde_json::to_value(task_row(conversation, graded, &scrubber)?)?,
        None => serde_json::to_value(chat_row(conversation, &scrubber))?,
    };
    row["id"] = json!(id);
    row["provenance"] = json!("chat");
    row["conversation"] = json!(conversation.id());
    row["model"] = json!(scrubber.text(conversation.agent().model.name()).text);
    let folder = conversation.history().root().join(FOLDER);
    let (store, files) = (conversation.history().store().clone(), files(conversation));
    let work = move || keep(&folder, &row, &id, &store, &files, &scrubber);
    let kept = tokio::task::spawn_blocking(work).await;
    let kept = kept.map_err(|error| RunError::Internal(error.to_string()))??;
    live.send(Event::Note(kept.text()));
    Ok(graded.map(|graded| graded.verdict))
}

fn check_ended(conversation: &Conversation) -> Result<(), RunError> {
    let is_reply = |entry: &Entry| matches!(entry, Entry::Reply { .. });
    let has_reply = conversation.entries().iter().any(is_reply);
    match has_reply && conversation.next_step() == Next::Person {
        true => Ok(()),
        false => Err(RunError::BadInput(
            "a conversation becomes a row once the model has ended an answer; let it go on, or send a message".to_owned(),
        )),
    }
}

fn check_accepted(verdict: &Verdict) -> Result<(), RunError> {
    if verdict.accepted {
        return Ok(());
    }
    let mut findings = verdict.findings.iter();
    let failed = findings.find(|finding| finding.outcome != Outcome::Pass);
    let reason = failed.map(|finding| format!(" ({} {})", finding.filter, finding.subject));
    Err(RunError::BadInput(format!(
        "the checks of the task reject this conversation{}; it is not added. Correct it and add it again",
        reason.unwrap_or_default()
    )))
}

/// The messages; replies that were stopped or cut are context only.
fn messages(conversation: &Conversation) -> Vec<Message> {
    let mut partial = conversation
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Reply { reply } => Some(reply.truncated || reply.repetition),
            Entry::PartialReply { .. } => Some(true),
            _ => None,
        });
    let messages = conversation.messages().into_iter();
    messages
        .map(|message| match message.role {
            Role::Assistant if partial.next() == Some(true) => message.as_context(),
            _ => message,
        })
        .collect()
}

/// The files that the person put, by name; of those with one name the last.
fn files(conversation: &Conversation) -> Vec<InputFile> {
    let mut files = Vec::<InputFile>::new();
    for entry in conversation.entries() {
        if let Entry::File(file) = entry {
            files.retain(|known| known.name != file.name);
            files.push(file.clone());
        }
    }
    files
}

/// The row of a conversation about a task.
fn task_row(
    conversation: &Conversation,
    graded: &Graded,
    scrubber: &Scrubber,
) -> Result<Row, RunError> {
    let Graded {
        task,
        trajectory,
        verdict,
    } = graded;
    let store = conversation.history().store();
    let row = Row::new(task, trajectory, verdict);
    let row = row.in_interpreter(&conversation.settings().interpreter);
    let mut row = row.with_contents(|id| store.get(id))?;
    row.messages = messages(conversation);
    scrubber.row(&mut row);
    Ok(row)
}

/// The row of a conversation without a task.
fn chat_row(conversation: &Conversation, scrubber: &Scrubber) -> ChatRow {
    let mut scrubbed = 0;
    let mut clean = |text: &str| {
        let found = scrubber.text(text);
        scrubbed += found.found.total();
        found.text
    };
    let agent = conversation.agent();
    let mut messages = messages(conversation);
    for message in &mut messages {
        message.content = clean(&message.content);
    }
    let files = files(conversation).into_iter().map(|file| ChatRowFile {
        kind: kind(&file.name),
        name: clean(&file.name),
        blake3: file.id,
    });
    ChatRow {
        messages,
        tools: tools(agent.format.name()),
        files: files.collect(),
        teacher: clean(agent.model.name()),
        format: agent.format.name().to_owned(),
        scrubbed: u32::try_from(scrubbed).unwrap_or(u32::MAX),
    }
}

/// The type that the extension of a file stands for.
fn kind(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(file_kind(&extension.to_ascii_lowercase())?.name())
}

/// What was kept.
struct Kept {
    path: PathBuf,
    is_new: bool,
    /// Files that are not part of the dataset, and why.
    withheld: Vec<String>,
}

impl Kept {
    fn text(&self) -> String {
        let path = self.path.display();
        let mut text = match self.is_new {
            true => format!("added to {path}"),
            false => format!("{path} has this conversation already"),
        };
        for file in &self.withheld {
            text += &format!("; without the file {file}");
        }
        text
    }
}

/// Writes the row and its files. A file with secrets, or one that cannot be searched, is left out.
fn keep(
    folder: &Path,
    row: &Value,
    id: &Digest,
    store: &ContentStore,
    files: &[InputFile],
    scrubber: &Scrubber,
) -> Result<Kept, RunError> {
    let kept = ContentStore::open(&folder.join(FILES))?;
    let mut withheld = Vec::new();
    for file in files {
        let bytes = store.get(&file.id)?;
        let scan = scrubber.file(&bytes);
        match scan.is_clean() {
            true => {
                kept.put(&bytes)?;
            }
            false => withheld.push(format!("{}: it {scan}", scrubber.text(&file.name).text)),
        }
    }
    let path = folder.join(ROWS);
    let is_new = append(&path, row, id).map_err(RunError::io(path.display().to_string()))?;
    Ok(Kept {
        path,
        is_new,
        withheld,
    })
}

/// Appends a row, unless the file has it; `false` if it has.
fn append(path: &Path, row: &Value, id: &Digest) -> std::io::Result<bool> {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true).read(true).mode(0o600);
    let mut file = options.open(path)?;
    // Another program may add a conversation too. Closing the file ends the lock.
    file.lock()?;
    if has(&file, id)? {
        return Ok(false);
    }
    file.write_all(format!("{row}\n").as_bytes())?;
    file.sync_all()?;
    Ok(true)
}

/// Whether a row has this id. Afterwards the file ends with a whole line: what a program that was killed wrote of a row is
/// removed.
fn has(mut file: &File, id: &Digest) -> std::io::Result<bool> {
    let id = format!("\"id\":\"{id}\"");
    let (mut reader, mut line, mut length) = (BufReader::new(file), Vec::new(), 0);
    while reader.read_until(b'\n', &mut line)? > 0 {
        if !line.ends_with(b"\n") {
            if serde_json::from_slice::<Value>(&line).is_err() {
                file.set_len(length)?;
                break;
            }
            file.write_all(b"\n")?;
        }
        if String::from_utf8_lossy(&line).contains(&id) {
            return Ok(true);
        }
        length += line.len() as u64;
        line.clear();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_kept_once_and_files_with_secrets_never() {
        let folder = tempfile::tempdir().unwrap();
        let store = ContentStore::open(&folder.path().join("history")).unwrap();
        let file = |name: &str, bytes: &[u8]| InputFile {
            name: name.to_owned(),
            id: store.put(bytes).unwrap(),
            size: bytes.len() as u64,
        };
        let secret = "hunter2hunter2";
        let files = [
            file("a.csv", b"a\n1\n"),
            file("b.csv", format!("key\n{secret}\n").as_bytes()),
        ];
        let kind = pybench_datasets::scrub::SecretKind::Key;
        let scrubber = Scrubber::with([(secret.to_owned(), kind)]);
        let dataset = folder.path().join(FOLDER);
        let kept = |text: &str| {
            let id = Digest::of_bytes(text.as_bytes());
            let row = json!({"messages": [{"role": "user", "content": text}], "id": id});
            keep(&dataset, &row, &id, &store, &files, &scrubber).unwrap()
        };
        let first = kept("one");
        assert!(first.is_new);
        assert_eq!(first.withheld.len(), 1);
        assert!(first.text().contains("without the file b.csv: it contains"));
        assert!(!kept("one").is_new);
        // A program was killed while it wrote a row.
        let path = dataset.join(ROWS);
        let mut rows = OpenOptions::new().append(true).open(path).unwrap();
        rows.write_all(b"{\"messages\":[{").unwrap();
        assert!(kept("two").is_new);
        let rows = std::fs::read_to_string(dataset.join(ROWS)).unwrap();
        assert_eq!(rows.lines().count(), 2);
        let is_row = |line: &str| serde_json::from_str::<Value>(line).is_ok();
        assert!(rows.lines().all(is_row));
        let files_kept = ContentStore::open(&dataset.join(FILES)).unwrap();
        assert!(files_kept.get(&files[0].id).is_ok());
        assert!(files_kept.get(&files[1].id).is_err());
    }

    #[test]
    fn what_the_checks_reject_is_no_row() {
        let mut verdict: Verdict = serde_json::from_value(json!({
            "trajectory": Digest::of_bytes(b""), "accepted": false, "findings": [], "checker": ""}))
        .unwrap();
        let error = check_accepted(&verdict).unwrap_err();
        assert!(error.to_string().contains("not added"), "{error}");
        verdict.accepted = true;
        assert!(check_accepted(&verdict).is_ok());
    }
}
