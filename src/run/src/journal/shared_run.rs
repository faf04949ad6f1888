//! What a journal on a server tells workers on machines that do not have the folder of its run.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::place::{JournalPlace, JournalPointer, schema_prefix};
use super::postgres::{PostgresJournal, PostgresServer};
use super::{Journal, Profile};
use crate::RunError;
use crate::artifact_names::POINTER;

/// Key of the metadata.
const KEY: &str = "shared_run";

/// A run that workers may join.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SharedRun {
    /// Name of its folder.
    name: String,
    /// The frozen recipe, as TOML.
    recipe: String,
}

impl Journal {
    /// Tells workers the frozen recipe of the run folder `root`, if they can join this journal. For runs with a store: workers
    /// that do not have the folder cannot read the files of others.
    pub(crate) fn share(&self, root: &Path, recipe: &str) -> Result<(), RunError> {
        if !self.is_shared() {
            return Ok(());
        }
        let run = SharedRun {
            name: run_name(root),
            recipe: recipe.to_owned(),
        };
        self.set_metadata(KEY, &serde_json::to_value(run)?)
    }

    /// The frozen recipe, if the process that coordinates the run has shared it.
    pub(crate) fn shared_recipe(&self) -> Result<Option<String>, RunError> {
        Ok(self.shared_run()?.map(|run| run.recipe))
    }

    fn shared_run(&self) -> Result<Option<SharedRun>, RunError> {
        let run = self.metadata(KEY)?;
        Ok(run.map(serde_json::from_value).transpose()?)
    }
}

impl JournalPlace {
    /// Finds the run of the folder name `root` on the server of `profile`, and notes it in the folder.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if there are several; the server does not answer.
    pub(crate) fn attach(root: &Path, profile: &Path) -> Result<(), RunError> {
        let loaded = Profile::load(profile)?;
        let profile = profile
            .canonicalize()
            .map_err(RunError::io(profile.display().to_string()))?;
        // Without a store, a worker needs the folder of the run itself.
        if loaded.store.is_none() {
            return Ok(());
        }
        let (server, name) = (&loaded.postgres, run_name(root));
        let mut found = Vec::new();
        for schema in PostgresJournal::schemas(server, &schema_prefix(root))? {
            match has_run(server, &schema, &name) {
                // It was deleted at this moment.
                Err(_) if PostgresJournal::is_blank(server, &schema)? => {}
                Err(error) => return Err(error),
                Ok(true) => found.push(schema),
                Ok(false) => {}
            }
        }
        match found.as_slice() {
            [] => Ok(()),
            [schema] => {
                let pointer = JournalPointer {
                    profile,
                    schema: schema.clone(),
                };
                match JournalPointer::read(&root.join(POINTER))? {
                    Some(known) if known == pointer => Ok(()),
                    _ => pointer.write(root),
                }
            }
            several => Err(RunError::Conflict(format!(
                "the server that {} names has several runs called {name}: delete the schemas of those that are no longer \
                 needed ({}), or give the run another name with --run NAME",
                profile.display(),
                several.join(", ")
            ))),
        }
    }
}

/// Whether a schema holds a run of this name that has not moved elsewhere.
fn has_run(server: &PostgresServer, schema: &str, name: &str) -> Result<bool, RunError> {
    let journal = Journal::open_postgres_read_only(server, schema)?;
    let run = journal.shared_run()?;
    Ok(run.is_some_and(|run| run.name == name) && journal.moved_to()?.is_none())
}

fn run_name(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
