//! The models in the memory of this machine. There are few, and one that nobody uses is unloaded after a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pybench_chat::local_model::{LocalModel, LocalModelSpec};
use pybench_run::RunError;
use tokio::sync::OnceCell;
use tokio::task::JoinError;

/// Maximum number of models in memory.
const MAX_MODELS: usize = 2;
/// A model that no conversation and no edit has used for this time is unloaded.
const IDLE: Duration = Duration::from_secs(300);
/// Number of checks for unused models in that time.
const CHECKS: u32 = 10;

/// A model that has to be unloaded, if there is one.
type Evicted = Option<Arc<dyn LocalModel>>;

/// A model and what makes room for it. The task that loads it holds another reference to the cell.
#[derive(Default)]
struct ModelCell {
    /// Empty until the model is loaded.
    model: OnceCell<Arc<dyn LocalModel>>,
    /// Unloaded by the task that loads the model, regardless of which request started it.
    evicted: Mutex<Evicted>,
}

impl ModelCell {
    /// Loads the model, unless it is loaded.
    async fn load(
        &self,
        load: impl Future<Output = Result<Arc<dyn LocalModel>, RunError>>,
    ) -> Result<Arc<dyn LocalModel>, RunError> {
        let load = async {
            // Its memory is free before the next one needs it.
            if let Some(evicted) = self.take_evicted() {
                evicted.unload().await;
            }
            load.await
        };
        self.model.get_or_try_init(|| load).await.cloned()
    }

    fn take_evicted(&self) -> Evicted {
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        evicted.take()
    }
}

/// The models in the memory of this machine.
pub(super) struct LocalModels {
    slots: Mutex<Vec<Slot>>,
    idle: Duration,
}

/// The place of a model in memory.
struct Slot {
    spec: LocalModelSpec,
    cell: Arc<ModelCell>,
    /// When it was last seen in use.
    used: Instant,
}

impl Default for LocalModels {
    fn default() -> Self {
        Self::with_idle(IDLE)
    }
}

impl LocalModels {
    fn with_idle(idle: Duration) -> Self {
        Self {
            slots: Mutex::default(),
            idle,
        }
    }

    /// The model of this kind, which `load` loads if it is not in memory. If there is no room, one that nobody uses is
    /// unloaded before. Both go on when the caller does not wait for them: another one may wait for the same model, and must
    /// not load it a second time or before there is room.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if all models in memory are in use; those of `load`.
    pub(super) async fn get(
        self: &Arc<Self>,
        spec: &LocalModelSpec,
        load: impl Future<Output = Result<Arc<dyn LocalModel>, RunError>> + Send + 'static,
    ) -> Result<Arc<dyn LocalModel>, RunError> {
        let cell = self.reserve(spec)?;
        let loaded = tokio::spawn(async move { cell.load(load).await });
        let failed = |error: JoinError| RunError::Internal(format!("no model was loaded: {error}"));
        loaded.await.map_err(failed)?
    }

    /// The cell of a model.
    fn reserve(self: &Arc<Self>, spec: &LocalModelSpec) -> Result<Arc<ModelCell>, RunError> {
        let mut slots = self.lock();
        if let Some(slot) = slots.iter_mut().find(|slot| slot.spec == *spec) {
            if slot.is_broken() {
                // Conversations that are open keep the old one.
                slot.cell = Arc::default();
            }
            slot.used = Instant::now();
            return Ok(slot.cell.clone());
        }
        let evicted = make_room(&mut slots)?;
        if slots.is_empty() {
            self.watch();
        }
        let cell = Arc::new(ModelCell {
            model: OnceCell::new(),
            evicted: Mutex::new(evicted),
        });
        slots.push(Slot {
            spec: spec.clone(),
            cell: cell.clone(),
            used: Instant::now(),
        });
        Ok(cell)
    }

    /// Unloads models that nobody uses, until none is left.
    fn watch(self: &Arc<Self>) {
        let (models, pause) = (Arc::downgrade(self), self.idle / CHECKS);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                match models.upgrade() {
                    Some(models) if models.unload_idle() => {}
                    _ => return,
                }
            }
        });
    }

    /// Unloads the models that have not been used for a while; whether others are left.
    fn unload_idle(&self) -> bool {
        let mut slots = self.lock();
        slots.retain_mut(|slot| {
            let is_used = slot.is_used();
            if is_used {
                slot.used = Instant::now();
            }
            is_used || slot.used.elapsed() <= self.idle
        });
        !slots.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn is_broken(&self) -> bool {
        let model = self.cell.model.get();
        model.is_some_and(|model| model.is_broken())
    }

    /// Whether somebody loads the model or uses it.
    fn is_used(&self) -> bool {
        let has_user = |model: &Arc<dyn LocalModel>| Arc::strong_count(model) > 1;
        Arc::strong_count(&self.cell) > 1 || self.cell.model.get().is_some_and(has_user)
    }
}

/// Removes the model that has been unused for the longest time, if there is no room for another one.
fn make_room(slots: &mut Vec<Slot>) -> Result<Evicted, RunError> {
    if slots.len() < MAX_MODELS {
        return Ok(None);
    }
    let unused = slots.iter().enumerate().filter(|(_, slot)| !slot.is_used());
    let oldest = unused.min_by_key(|(_, slot)| slot.used).map(|(at, _)| at);
    let oldest = oldest.ok_or_else(|| {
        RunError::Conflict(format!(
            "{MAX_MODELS} models are in the memory of this machine, and all of them are in use: close the conversations or \
             edits of one, then try again"
        ))
    })?;
    let cell = Arc::into_inner(slots.remove(oldest).cell);
    Ok(cell.and_then(|cell| cell.model.into_inner()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pybench_chat::local_model::Unloading;
    use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
    use pybench_run::{Price, Rollout};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// A model that counts how many of them are in memory.
    struct Counted {
        count: Arc<AtomicUsize>,
        is_broken: bool,
    }

    impl Counted {
        fn new(count: &Arc<AtomicUsize>, is_broken: bool) -> Self {
            count.fetch_add(1, Ordering::SeqCst);
            Self {
                count: count.clone(),
                is_broken,
            }
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl LocalModel for Counted {
        fn client(self: Arc<Self>, _: &Rollout) -> Arc<dyn ChatModel> {
            self
        }

        fn unload(self: Arc<Self>) -> Unloading {
            Box::pin(async move {
                // A process takes some time to end.
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(self);
            })
        }

        fn is_broken(&self) -> bool {
            self.is_broken
        }
    }

    #[async_trait::async_trait]
    impl ChatModel for Counted {
        fn name(&self) -> &str {
            "counted"
        }

        fn price(&self) -> Option<Price> {
            None
        }

        async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
            Err(ChatError::Timeout)
        }
    }

    /// Models in memory, and how many of them there are.
    struct Bench {
        models: Arc<LocalModels>,
        count: Arc<AtomicUsize>,
    }

    impl Bench {
        fn new(idle: Duration) -> Self {
            Self {
                models: Arc::new(LocalModels::with_idle(idle)),
                count: Arc::default(),
            }
        }

        fn count(&self) -> usize {
            self.count.load(Ordering::SeqCst)
        }

        /// Waits until no more than so many are left.
        async fn until(&self, count: usize) {
            let left = async {
                while self.count() > count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(LONG, left).await.unwrap();
        }

        /// The model of this file, for a conversation.
        async fn client(&self, file: &str) -> Result<Arc<dyn ChatModel>, RunError> {
            let (count, is_broken) = (self.count.clone(), file == "broken");
            let load = async move {
                assert!(count.load(Ordering::SeqCst) < MAX_MODELS, "no room");
                let model = Counted::new(&count, is_broken);
                Ok(Arc::new(model) as Arc<dyn LocalModel>)
            };
            let model = self.models.get(&spec(file), load).await?;
            Ok(model.client(&Rollout::default()))
        }
    }

    fn spec(file: &str) -> LocalModelSpec {
        let agent = serde_json::json!({"kind": "gguf", "model": file});
        LocalModelSpec::of(&serde_json::from_value(agent).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn users_of_the_same_model_share_it() {
        let bench = Bench::new(LONG);
        let chat = bench.client("a").await.unwrap();
        let edit = bench.client("a").await.unwrap();
        assert!(Arc::ptr_eq(&chat, &edit));
        drop((chat, edit));
        // It is there for a while, for the next one.
        bench.client("a").await.unwrap();
        assert_eq!(bench.count(), 1);
    }

    #[tokio::test]
    async fn a_model_that_nobody_uses_makes_room_for_another_one() {
        let bench = Bench::new(LONG);
        let used = bench.client("a").await.unwrap();
        bench.client("b").await.unwrap();
        let other = bench.client("c").await.unwrap();
        assert_eq!(bench.count(), MAX_MODELS);
        let again = bench.client("a").await.unwrap();
        assert!(Arc::ptr_eq(&used, &again));
        let Err(error) = bench.client("d").await else {
            panic!("a third model was loaded");
        };
        assert!(matches!(error, RunError::Conflict(_)), "{error}");
        drop(other);
        bench.client("d").await.unwrap();
        assert_eq!(bench.count(), MAX_MODELS);
    }

    #[tokio::test]
    async fn a_model_that_no_longer_answers_is_loaded_again() {
        let bench = Bench::new(LONG);
        let broken = bench.client("broken").await.unwrap();
        let again = bench.client("broken").await.unwrap();
        assert!(!Arc::ptr_eq(&broken, &again));
        assert_eq!(bench.count(), 2);
        drop(broken);
        assert_eq!(bench.count(), 1);
    }

    #[tokio::test]
    async fn a_canceled_request_does_not_load_a_model_twice() {
        let bench = Bench::new(LONG);
        let loads = Arc::new(AtomicUsize::new(0));
        let get = async || {
            let (count, loads) = (bench.count.clone(), loads.clone());
            let load = async move {
                loads.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(Arc::new(Counted::new(&count, false)) as Arc<dyn LocalModel>)
            };
            bench.models.get(&spec("a"), load).await
        };
        let begun = async {
            while loads.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = begun => {}
            _ = get() => panic!("it was loaded at once"),
        }
        get().await.unwrap();
        assert_eq!((loads.load(Ordering::SeqCst), bench.count()), (1, 1));
    }

    #[tokio::test]
    async fn a_model_that_could_not_be_loaded_takes_no_room() {
        let bench = Bench::new(LONG);
        for file in ["a", "b", "c"] {
            let load = async { Err(RunError::BadInput("no weights".to_owned())) };
            assert!(bench.models.get(&spec(file), load).await.is_err());
        }
        bench.client("c").await.unwrap();
        assert_eq!(bench.count(), 1);
    }

    #[tokio::test]
    async fn a_model_is_unloaded_when_nobody_has_used_it_for_a_while() {
        let bench = Bench::new(Duration::from_millis(50));
        let used = bench.client("a").await.unwrap();
        bench.client("b").await.unwrap();
        bench.until(1).await;
        assert!(Arc::ptr_eq(&used, &bench.client("a").await.unwrap()));
        drop(used);
        bench.until(0).await;
        // It is loaded again.
        bench.client("a").await.unwrap();
        assert_eq!(bench.count(), 1);
    }
}
