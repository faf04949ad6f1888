//! The model that a command names by its flags.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pybench::llm::{Metered, OpenAi, OpenAiOptions, TeacherError, known_price};
use pybench::run::{BudgetCap, RunError, RunFolder};

use super::report::text::slug;

/// A model behind an endpoint, with a budget.
#[derive(Debug, Args)]
pub struct EndpointArgs {
    /// The model, as its endpoint knows it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Any OpenAI-compatible endpoint
    #[arg(long, value_name = "URL", default_value = "https://api.openai.com/v1")]
    pub base_url: String,
    /// The environment variable that holds the key
    #[arg(long, value_name = "VARIABLE")]
    pub key_env: Option<String>,
    /// Questions at a time
    #[arg(long, default_value_t = 4)]
    pub jobs: usize,
    /// Most dollars; needs a model whose price is known
    #[arg(long, value_name = "DOLLARS")]
    pub usd: Option<f64>,
    /// Most tokens
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
}

impl EndpointArgs {
    /// The model with books of its own, in a folder below `books`: nothing is paid for twice. `format`
    /// names its calls in the journal.
    ///
    /// # Errors
    /// [`RunError::BadInput`] without a model, for an address that is none, and for a budget in dollars
    /// where the price is not known; [`RunError::Endpoint`] for a key that is not set.
    pub fn open(&self, books: &Path, format: &'static str) -> Result<Metered<OpenAi>, RunError> {
        let bad = |text: String| RunError::BadInput(text);
        let model = self
            .model
            .as_deref()
            .ok_or_else(|| bad("--model NAME is missing".to_owned()))?;
        let base_url = self.base_url.trim_end_matches('/').to_owned();
        let price = known_price(model);
        if self.usd.is_some() && price.is_none() {
            return Err(bad(format!(
                "the price of {model} is not known: bound it by --tokens"
            )));
        }
        let name = slug(&format!("{model} {base_url}"));
        let frozen = format!("model = {model:?}\nbase_url = {base_url:?}\n");
        let folder = Arc::new(RunFolder::open(&books.join(name), &frozen)?);
        let endpoint = OpenAi::new(OpenAiOptions {
            model: model.to_owned(),
            base_url,
            key: self.key()?.map(Into::into),
            headers: Default::default(),
            price,
            timeout: Duration::from_secs(120),
            extra: Default::default(),
        });
        let endpoint = endpoint.map_err(|error| match error {
            TeacherError::Rejected(text) => RunError::BadInput(text),
            other => RunError::Endpoint(other.to_string()),
        })?;
        let cap = BudgetCap {
            micro_usd: self.usd.map(|usd| (usd * 1e6) as u64),
            tokens: self.tokens,
        };
        Ok(Metered::new(endpoint, folder, cap, format))
    }

    fn key(&self) -> Result<Option<String>, RunError> {
        let Some(name) = &self.key_env else {
            return Ok(None);
        };
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        let missing = || RunError::Endpoint(format!("the environment variable {name} is not set"));
        value.ok_or_else(missing).map(Some)
    }
}
