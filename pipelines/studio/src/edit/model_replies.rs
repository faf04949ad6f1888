//! The replies of models in edits. Each is on the disk before it counts, so that an edit can be begun again with it, and
//! nobody but the studio says which model wrote a turn.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pybench_llm::Reply;
use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};

use super::old_files::delete_older;

/// Replies that were not used for this time are deleted. Drafts, which have turns from them, are deleted sooner.
const MAX_AGE: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// A folder of replies, by their ids.
#[derive(Clone, Debug)]
pub(crate) struct ModelReplies {
    folder: PathBuf,
}

/// A reply, and the model that wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelReply {
    /// Name of the model.
    pub(crate) model: String,
    pub(crate) reply: Reply,
}

impl ModelReplies {
    /// Those in a folder. Old ones are deleted.
    pub(crate) fn new(folder: PathBuf) -> Self {
        delete_older(&folder, MAX_AGE);
        Self { folder }
    }

    /// Writes a reply and returns its id.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn put(&self, reply: &ModelReply) -> Result<Digest, RunError> {
        let bytes = serde_json::to_vec(reply)?;
        let id = Digest::of_bytes(&bytes);
        let io = RunError::io(self.folder.display().to_string());
        std::fs::create_dir_all(&self.folder).map_err(io)?;
        write_atomically(&self.folder.join(id.as_str()), &bytes)?;
        Ok(id)
    }

    /// The reply with this id, which is kept for another [`MAX_AGE`]: an edit goes on with it.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none.
    pub(crate) fn get(&self, id: &str) -> Result<ModelReply, RunError> {
        let id = Digest::try_from(id.to_owned())
            .map_err(|error| RunError::BadInput(format!("`model` of a turn: {error}")))?;
        let path = self.folder.join(id.as_str());
        let bytes = std::fs::read(&path).map_err(|_| {
            RunError::BadInput(format!(
                "`model` of a turn: the studio does not have the reply {}; take the turn back and let the model write it again",
                id.short()
            ))
        })?;
        renew(&path);
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// Notes that a file is used now. One that cannot be changed can still be read, and is deleted earlier.
fn renew(path: &Path) {
    let file = File::options().write(true).open(path);
    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
}

#[cfg(test)]
mod tests {
    use pybench_types::trajectory::Usage;

    use super::*;

    fn reply(content: &str) -> ModelReply {
        ModelReply {
            model: "m".to_owned(),
            reply: Reply {
                content: content.to_owned(),
                usage: Usage::default(),
                truncated: false,
                repetition: false,
            },
        }
    }

    #[test]
    fn old_replies_are_deleted_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let replies = ModelReplies::new(folder.path().to_owned());
        let ids = ["1", "2", "3"].map(|content| replies.put(&reply(content)).unwrap());
        for (id, age) in ids.iter().zip([2 * MAX_AGE, MAX_AGE / 2, 2 * MAX_AGE]) {
            let path = folder.path().join(id.as_str());
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        // An edit goes on with this one.
        replies.get(ids[2].as_str()).unwrap();
        let replies = ModelReplies::new(folder.path().to_owned());
        assert!(replies.get(ids[0].as_str()).is_err());
        assert_eq!(replies.get(ids[1].as_str()).unwrap(), reply("2"));
        assert_eq!(replies.get(ids[2].as_str()).unwrap(), reply("3"));
    }

    #[test]
    fn only_replies_that_were_written_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let replies = ModelReplies::new(folder.path().join("replies"));
        let reply = reply("2");
        let id = replies.put(&reply).unwrap();
        assert_eq!(replies.get(id.as_str()).unwrap(), reply);
        for (id, expected) in [
            ("../replies".to_owned(), "not a BLAKE3 digest"),
            (Digest::of_bytes(b"other").to_string(), "does not have"),
        ] {
            let error = replies.get(&id).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
