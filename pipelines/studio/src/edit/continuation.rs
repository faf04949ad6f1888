//! A model that writes the next turns of an edit, until it answers, a limit is reached, or the person stops it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pybench_chat::live::Stop;
use pybench_chat::settings::Settings;
use pybench_eval::run::AgentChoice;
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply, ReplyWatcher, token_bound};
use pybench_run::{BudgetCap, Price, Reservation, RunError};
use pybench_types::trajectory::{Sampling, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model_choice::{ModelChoice, ModelEndpoint};

/// Tokens that an endpoint may count in addition to what was sent.
const UNSEEN_TOKENS: u64 = 4_096;
/// Maximum number of tokens of a continuation.
const MAX_TOKENS: u64 = 10_000_000;

/// A request to let a model write turns. All limits are hard: what the next call may use counts before it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContinueRequest {
    /// Number of turns that the sender has seen.
    pub(crate) after: usize,
    /// Name of the agent that writes them.
    #[serde(default)]
    pub(crate) agent: Option<String>,
    /// A model at an endpoint, instead of an agent.
    #[serde(default)]
    pub(crate) endpoint: Option<ModelEndpoint>,
    /// A checkpoint or GGUF file instead, by its path in the project.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// Maximum number of turns, from 1.
    pub(crate) turns: u32,
    /// Maximum number of tokens of all calls together.
    pub(crate) tokens: u64,
    /// Maximum cost in US dollars; `None` for no limit beside that of the recipe.
    #[serde(default)]
    pub(crate) usd: Option<f64>,
}

impl ContinueRequest {
    /// The model.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the request names none, or several.
    pub(crate) fn model(&self) -> Result<ModelChoice<'_>, RunError> {
        let (agent, file) = (self.agent.as_deref(), self.file.as_deref());
        let choice = ModelChoice::of(agent, self.endpoint.as_ref(), file)?;
        choice.ok_or_else(|| {
            let text = "the request names no model; name one of `agent`, `endpoint` and `file`";
            RunError::BadInput(text.to_owned())
        })
    }
}

/// A continuation as the page shows it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ContinuationView {
    pub(crate) agent: String,
    pub(crate) model: String,
    /// Whether it goes on.
    pub(crate) working: bool,
    /// The text of the reply that arrives. It does not count yet.
    pub(crate) reply: String,
    /// Number of turns that it wrote.
    pub(crate) turns: u32,
    /// Tokens of its calls.
    pub(crate) tokens: u64,
    /// Millionths of a US dollar; `None` if the price is unknown.
    pub(crate) micro_usd: Option<u64>,
    /// Why it ended before the answer; empty otherwise.
    pub(crate) note: String,
}

/// A model that writes the next turns of an edit.
pub(crate) struct Continuation {
    agent: String,
    /// Name of the model, as edits and rows have it.
    name: String,
    model: Arc<dyn ChatModel>,
    sampling: Sampling,
    max_turns: u32,
    /// The limits of the person.
    own: BudgetCap,
    /// What the recipe leaves.
    left: BudgetCap,
    stop: Stop,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    reply: String,
    turns: u32,
    tokens: u64,
    micro_usd: u64,
    note: String,
}

impl Continuation {
    /// # Errors
    /// [`RunError::BadInput`] if a limit is invalid, or one in dollars cannot be kept.
    pub(crate) fn new(
        settings: &Settings,
        model: Arc<dyn ChatModel>,
        request: &ContinueRequest,
    ) -> Result<Self, RunError> {
        Ok(Self {
            own: check_limits(request, model.price().is_some())?,
            left: BudgetCap::of(&settings.budget),
            agent: settings.label.clone(),
            name: public_name(settings, model.as_ref()),
            sampling: settings.rollout.sampling.clone(),
            max_turns: request.turns,
            stop: Stop::default(),
            progress: Mutex::default(),
            model,
        })
    }

    /// Counts what was spent for the edit before toward the budget of the recipe.
    pub(crate) fn count(&mut self, spent: Reservation) {
        let less = |limit: &mut Option<u64>, spent: u64| {
            *limit = limit.map(|limit| limit.saturating_sub(spent));
        };
        less(&mut self.left.micro_usd, spent.micro_usd);
        less(&mut self.left.tokens, spent.tokens);
    }

    /// What its calls cost.
    pub(crate) fn spent(&self) -> Reservation {
        let progress = self.lock();
        Reservation {
            micro_usd: progress.micro_usd,
            tokens: progress.tokens,
        }
    }

    /// Name of the model, as edits and rows have it.
    pub(crate) fn model(&self) -> &str {
        &self.name
    }

    /// Maximum number of turns.
    pub(crate) fn max_turns(&self) -> u32 {
        self.max_turns
    }

    /// Ends it: a reply that arrives is given up, a cell that runs ends first.
    pub(crate) fn stop(&self) {
        self.stop.request();
    }

    /// Notes why it ended.
    pub(crate) fn end(&self, note: String) {
        let mut progress = self.lock();
        progress.reply.clear();
        progress.note = note;
    }

    /// The next reply.
    ///
    /// # Errors
    /// Why the model writes no further turn.
    pub(crate) async fn next(&self, request: &ChatRequest<'_>) -> Result<Reply, String> {
        let request = ChatRequest {
            // The same messages may be answered again.
            sample: rand::random(),
            sampling: &self.sampling,
            ..*request
        };
        let most = Usage {
            prompt_tokens: token_bound(request.messages),
            completion_tokens: self.sampling.max_tokens.into(),
        };
        self.check(most)?;
        let asked = self.ask(&request).await;
        match asked {
            Some(Ok(reply)) => {
                self.charge(used(most, &reply));
                let mut progress = self.lock();
                progress.reply.clear();
                progress.turns += 1;
                Ok(reply)
            }
            Some(Err(error)) => {
                if error.may_be_charged() {
                    self.charge(most);
                }
                Err(error.to_string())
            }
            // Nobody says what the call cost.
            None => {
                self.charge(most);
                Err(stopped())
            }
        }
    }

    /// Asks for a reply and shows its text; `None` if the person stopped it.
    async fn ask(&self, request: &ChatRequest<'_>) -> Option<Result<Reply, ChatError>> {
        let (watcher, mut pieces) = ReplyWatcher::new();
        let asked = self.model.reply_live(request, &watcher);
        tokio::pin!(asked);
        loop {
            tokio::select! {
                biased;
                () = self.stop.requested() => return None,
                Some(piece) = pieces.recv() => self.lock().reply.push_str(&piece),
                reply = &mut asked => return Some(reply),
            }
        }
    }

    /// Whether another call, which may use so much, is within the limits.
    fn check(&self, most: Usage) -> Result<(), String> {
        if self.stop.is_requested() {
            return Err(stopped());
        }
        let progress = self.lock();
        if progress.turns >= self.max_turns {
            return Err(format!(
                "it wrote {} turns, as many as you allowed",
                progress.turns
            ));
        }
        let lower = |own: Option<u64>, left: Option<u64>| own.into_iter().chain(left).min();
        let tokens = progress.tokens.saturating_add(most.total());
        let max_tokens = lower(self.own.tokens, self.left.tokens);
        if let Some(limit) = max_tokens.filter(|limit| tokens > *limit) {
            return Err(format!(
                "the next turn may use {} tokens, and {} of {limit} are left",
                most.total(),
                limit.saturating_sub(progress.tokens)
            ));
        }
        let cost = progress.micro_usd.saturating_add(self.cost(most));
        let max_cost = lower(self.own.micro_usd, self.left.micro_usd);
        if let Some(limit) = max_cost.filter(|limit| cost > *limit) {
            let usd = |micro: u64| micro as f64 / 1e6;
            return Err(format!(
                "the next turn may cost ${:.4}, and ${:.4} of ${:.4} are left",
                usd(self.cost(most)),
                usd(limit.saturating_sub(progress.micro_usd)),
                usd(limit)
            ));
        }
        Ok(())
    }

    fn charge(&self, usage: Usage) {
        let cost = self.cost(usage);
        let mut progress = self.lock();
        progress.tokens = progress.tokens.saturating_add(usage.total());
        progress.micro_usd = progress.micro_usd.saturating_add(cost);
    }

    fn cost(&self, usage: Usage) -> u64 {
        let price: Option<Price> = self.model.price();
        price.map_or(0, |price| price.micro_usd(usage))
    }

    /// `working` says whether it goes on.
    pub(crate) fn view(&self, working: bool) -> ContinuationView {
        let progress = self.lock();
        ContinuationView {
            agent: self.agent.clone(),
            model: self.name.clone(),
            working,
            reply: progress.reply.clone(),
            turns: progress.turns,
            tokens: progress.tokens,
            micro_usd: self.model.price().map(|_| progress.micro_usd),
            note: progress.note.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a model, or of its agent if the model is a path on this machine, which must not reach a dataset.
fn public_name(settings: &Settings, model: &dyn ChatModel) -> String {
    match settings.agent {
        AgentChoice::Checkpoint { .. } | AgentChoice::Gguf { .. } => settings.label.clone(),
        _ => model.name().to_owned(),
    }
}

fn stopped() -> String {
    "you stopped it".to_owned()
}

/// What a reply used: what is possible if the endpoint did not count its tokens, or counted more than there can be.
fn used(most: Usage, reply: &Reply) -> Usage {
    let possible = (most.total())
        .saturating_add(reply.content.len() as u64)
        .saturating_add(UNSEEN_TOKENS);
    match reply.usage {
        usage if usage == Usage::default() || usage.total() > possible => most,
        usage => usage,
    }
}

fn check_limits(request: &ContinueRequest, has_price: bool) -> Result<BudgetCap, RunError> {
    let refused = |text: String| Err(RunError::BadInput(text));
    if request.turns == 0 {
        return refused("`turns` is 0; let the model write at least one turn".to_owned());
    }
    if !(1..=MAX_TOKENS).contains(&request.tokens) {
        return refused(format!(
            "`tokens` is {}; give a number from 1 to {MAX_TOKENS}",
            request.tokens
        ));
    }
    let micro_usd = match request.usd {
        None => None,
        Some(usd) if !usd.is_finite() || usd < 0.0 => {
            return refused(format!("`usd` is {usd}; give an amount in US dollars"));
        }
        Some(_) if !has_price => {
            let text = "the price of the model is unknown, so the limit `usd` cannot be kept; limit `tokens`, or choose an \
                        agent of a recipe with a `price`";
            return refused(text.to_owned());
        }
        // The cast saturates.
        Some(usd) => Some((usd * 1e6) as u64),
    };
    Ok(BudgetCap {
        micro_usd,
        tokens: Some(request.tokens),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Local;

    #[async_trait::async_trait]
    impl ChatModel for Local {
        fn name(&self) -> &str {
            "checkpoint:/home/ann/model"
        }
        fn price(&self) -> Option<Price> {
            None
        }
        async fn reply(&self, _: &ChatRequest<'_>) -> Result<Reply, ChatError> {
            Err(ChatError::Timeout)
        }
    }

    #[test]
    fn the_budget_of_the_recipe_holds_for_all_models_of_an_edit() {
        let endpoint = json!({"kind": "openai", "model": "m", "base_url": "http://h/v1"});
        let settings = json!({"label": "mine", "agent": endpoint, "budget": {"tokens": 100}});
        let settings = serde_json::from_value(settings).unwrap();
        let request = ContinueRequest {
            after: 0,
            agent: Some("mine".to_owned()),
            endpoint: None,
            file: None,
            turns: 1,
            tokens: 90,
            usd: None,
        };
        let mut continuation = Continuation::new(&settings, Arc::new(Local), &request).unwrap();
        let most = |tokens| Usage {
            prompt_tokens: tokens,
            completion_tokens: 0,
        };
        assert!(continuation.check(most(91)).is_err());
        assert!(continuation.check(most(90)).is_ok());
        continuation.count(Reservation {
            micro_usd: 0,
            tokens: 60,
        });
        assert!(continuation.check(most(41)).is_err());
        assert!(continuation.check(most(40)).is_ok());
    }

    #[test]
    fn paths_of_this_machine_are_in_no_name() {
        let of = |agent: serde_json::Value| {
            let settings = json!({"label": "mine", "agent": agent});
            public_name(&serde_json::from_value(settings).unwrap(), &Local)
        };
        let path = "/home/ann/model";
        assert_eq!(of(json!({"kind": "checkpoint", "model": path})), "mine");
        assert_eq!(of(json!({"kind": "gguf", "model": path})), "mine");
        let endpoint = json!({"kind": "openai", "model": "m", "base_url": "http://h/v1"});
        assert_eq!(of(endpoint), Local.name());
    }
}
