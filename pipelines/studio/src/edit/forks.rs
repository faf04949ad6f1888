//! All edits that are open. Each has a session, so there are few, and one that nobody asks for is closed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_run::RunError;

use super::continuation::{Continuation, ContinueRequest};
use super::drafts::Drafts;
use super::fork::Fork;
use super::model_replies::ModelReplies;
use super::models::Models;
use super::plan::{ForkRequest, Plan};
use crate::interpreters::Interpreters;
use crate::model_choice::ModelPlace;
use crate::record::Record;
use crate::shared_models::SharedModels;
use crate::sources::Opened;

/// Maximum number of edits that are open.
pub(crate) const MAX_FORKS: usize = 4;
/// An edit is closed after this time without a request for it. Browsers call the timers of hidden pages once a minute.
const LEASE: Duration = Duration::from_secs(180);

/// Where the models of edits are, and where their replies and unsaved turns are kept.
#[derive(Clone, Debug)]
pub(crate) struct EditPlace {
    /// Its runs may have made the row of a dataset.
    pub(crate) models: ModelPlace,
    /// Folder of the replies.
    pub(crate) replies: PathBuf,
    /// Folder of the turns that are not saved.
    pub(crate) drafts: PathBuf,
}

/// All edits that are open.
pub(crate) struct Forks {
    open: Mutex<HashMap<String, Arc<Fork>>>,
    interpreters: Interpreters,
    models: Models,
    replies: Arc<ModelReplies>,
    drafts: Drafts,
    /// Where the run that made the row of a dataset is looked for.
    runs_dir: PathBuf,
    lease: Duration,
}

impl Forks {
    pub(crate) fn new(place: EditPlace, models: Arc<SharedModels>) -> Self {
        Self::with_lease(place, models, LEASE)
    }

    pub(crate) fn with_lease(place: EditPlace, models: Arc<SharedModels>, lease: Duration) -> Self {
        Self {
            open: Mutex::default(),
            interpreters: Interpreters::default(),
            replies: Arc::new(ModelReplies::new(place.replies)),
            drafts: Drafts::new(place.drafts),
            runs_dir: place.models.runs_dir.clone(),
            models: Models::new(place.models, models),
            lease,
        }
    }

    pub(crate) fn models(&self) -> &Models {
        &self.models
    }

    /// Lets a model write the next turns of an edit.
    ///
    /// # Errors
    /// As [`Models::open`], [`Continuation::new`] and [`Fork::continue_by`].
    pub(crate) async fn continue_by(
        &self,
        fork: &Fork,
        request: &ContinueRequest,
    ) -> Result<(), RunError> {
        let (settings, model) = self.models.open(request, fork.format()).await?;
        let continuation = Continuation::new(&settings, model, request)?;
        fork.continue_by(request.after, continuation)?;
        self.models.remember(request.model()?).await;
        Ok(())
    }

    /// Reads what is edited.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn plan(
        &self,
        opened: &Opened,
        record: Record,
        request: &ForkRequest,
    ) -> Result<Plan, RunError> {
        Plan::new(opened, record, request, &self.runs_dir, |choice| {
            self.interpreters.get(choice)
        })
    }

    /// Begins an edit of the run `name`; `None` if as many are open as can be.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if one of the turns of the request cannot be sent.
    pub(crate) fn begin(
        self: &Arc<Self>,
        name: String,
        plan: Plan,
        request: ForkRequest,
    ) -> Result<Option<Arc<Fork>>, RunError> {
        let id = blake3::Hash::from(rand::random::<[u8; 32]>()).to_hex();
        let id = id[..32].to_owned();
        let draft = self.drafts.of(&plan);
        let mut turns = request.turns;
        if request.resume && turns.is_empty() {
            turns = plan.sendable(draft.turns(), &self.replies);
        }
        let (replies, lease) = (self.replies.clone(), self.lease);
        let fork = Fork::new(id.clone(), name, plan, turns, replies, draft, lease)?;
        let fork = Arc::new(fork);
        {
            let mut open = lock(&self.open);
            if open.len() >= MAX_FORKS {
                return Ok(None);
            }
            open.insert(id.clone(), fork.clone());
        }
        fork.keep_turns();
        let (forks, live) = (self.clone(), fork.clone());
        tokio::spawn(async move {
            live.live().await;
            lock(&forks.open).remove(&id);
        });
        Ok(Some(fork))
    }

    /// The edit with this id, which somebody asks for.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Fork>> {
        let fork = lock(&self.open).get(id).cloned()?;
        fork.touch();
        Some(fork)
    }

    /// Closes all edits.
    pub(crate) fn close_all(&self) {
        for (_, fork) in lock(&self.open).drain() {
            fork.close();
        }
    }

    /// Closes an edit; nothing happens if there is none.
    pub(crate) fn close(&self, id: &str) {
        if let Some(fork) = lock(&self.open).remove(id) {
            fork.close();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
