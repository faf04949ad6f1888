//! What requests to a chat model have in common.

use pybench_agent::Format;
use pybench_llm::OpenAiOptions;
use pybench_run::{RepetitionDetection, Rollout};

/// How a model is called: the journal name of its calls, and what each request asks for.
#[derive(Clone)]
pub struct RequestOptions {
    /// Journal name of the calls.
    pub(crate) name: &'static str,
    /// The tools offered.
    tools: Option<serde_json::Value>,
    repetition_detection: Option<RepetitionDetection>,
}

impl RequestOptions {
    /// Plain questions without tools.
    pub fn plain(name: &'static str) -> Self {
        Self {
            name,
            tools: None,
            repetition_detection: None,
        }
    }

    /// The requests of an agent that speaks `format`.
    pub fn of_rollout(format: &dyn Format, rollout: &Rollout) -> Self {
        Self {
            name: format.name(),
            tools: format.tools(),
            repetition_detection: rollout.repetition_detection,
        }
    }

    /// The settings of an endpoint, with what each request asks for.
    pub fn apply(&self, options: OpenAiOptions) -> OpenAiOptions {
        options
            .with_tools(self.tools.clone())
            .with_repetition_detection(self.repetition_detection)
    }
}
