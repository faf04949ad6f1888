//! Command-line options for a model behind an API endpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pybench_llm::{ChatError, Metered, OpenAi, OpenAiOptions, known_price};
use pybench_run::{BudgetCap, Interrupt, RunError, RunFolder};

use pybench_types::text::slug;

/// A model behind an API endpoint, with a budget.
#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// Model name, as the endpoint knows it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Base URL of an OpenAI-compatible API
    #[arg(long, value_name = "URL", default_value = "https://api.openai.com/v1")]
    pub base_url: String,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VARIABLE")]
    pub key_env: Option<String>,
    /// Requests in flight [default: as many as the endpoint answers without slowing down, up to 64]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Maximum cost in US dollars; requires a model with a known price
    #[arg(long, value_name = "DOLLARS")]
    pub usd: Option<f64>,
    /// Maximum number of tokens
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
}

/// Questions that are prepared at the same time unless an option says otherwise; the model's rate limiter decides how
/// many of them are sent.
const MAX_PREPARED: usize = 64;

impl EndpointArgs {
    /// Number of questions in work.
    pub fn concurrency(&self) -> usize {
        self.jobs.unwrap_or(MAX_PREPARED)
    }

    /// Opens the model. Its calls and costs are journaled in a folder below `journal_dir`, so that no
    /// call is paid for twice; `format` identifies them there. Waits for the rate limit end with `interrupt`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] without a model, for an invalid URL, and for a budget in dollars if the price
    /// is unknown; [`RunError::Endpoint`] for an API key that is not set.
    pub fn open(
        &self,
        journal_dir: &Path,
        format: &'static str,
        interrupt: &Interrupt,
    ) -> Result<Metered<OpenAi>, RunError> {
        let bad = |text: String| RunError::BadInput(text);
        let model = self
            .model
            .as_deref()
            .ok_or_else(|| bad("no model given: pass --model NAME".to_owned()))?;
        let base_url = self.base_url.trim_end_matches('/').to_owned();
        let price = known_price(model);
        if self.usd.is_some() && price.is_none() {
            return Err(bad(format!(
                "--usd: the price of {model} is unknown; limit the run with --tokens instead"
            )));
        }
        let name = slug(&format!("{model} {base_url}"));
        let identity = format!("model = {model:?}\nbase_url = {base_url:?}\n");
        let folder = Arc::new(RunFolder::open(&journal_dir.join(name), &identity)?);
        let endpoint = OpenAi::new(OpenAiOptions {
            model: model.to_owned(),
            base_url,
            key: self.key()?.map(Into::into),
            headers: Default::default(),
            price,
            timeout: Duration::from_secs(120),
            extra: Default::default(),
            restore_python_tag: false,
        });
        let endpoint = endpoint.map_err(|error| match error {
            ChatError::Rejected(text) => RunError::BadInput(text),
            other => RunError::Endpoint(other.to_string()),
        })?;
        let cap = BudgetCap {
            micro_usd: self.usd.map(|usd| (usd * 1e6) as u64),
            tokens: self.tokens,
        };
        Ok(Metered::new(endpoint, folder, cap, format).with_interrupt(interrupt.clone()))
    }

    fn key(&self) -> Result<Option<String>, RunError> {
        let Some(name) = &self.key_env else {
            return Ok(None);
        };
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        let missing = || {
            RunError::Endpoint(format!(
                "--key-env: the environment variable {name} is not set"
            ))
        };
        value.ok_or_else(missing).map(Some)
    }
}
