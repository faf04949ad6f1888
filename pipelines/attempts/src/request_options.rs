//! What requests to a chat model have in common.

use pybench_agent::{CodeInterpreterFormat, Format};
use pybench_llm::{OpenAiOptions, RequiredText};
use pybench_run::{RepetitionDetection, Rollout};

/// How a model is called: the journal name of its calls, and what each request asks for.
#[derive(Clone)]
pub struct RequestOptions {
    /// Journal name of the calls.
    pub(crate) name: &'static str,
    /// The tools offered.
    tools: Option<serde_json::Value>,
    repetition_detection: Option<RepetitionDetection>,
    /// What a reply must have begun early.
    required_text: Option<RequiredText>,
    /// Whether the model writes code for Llama's built-in interpreter.
    code_interpreter: bool,
}

impl RequestOptions {
    /// Plain questions without tools.
    pub fn plain(name: &'static str) -> Self {
        Self {
            name,
            tools: None,
            repetition_detection: None,
            required_text: None,
            code_interpreter: false,
        }
    }

    /// The requests of an agent that speaks `format`.
    pub fn of_rollout(format: &dyn Format, rollout: &Rollout) -> Self {
        Self {
            name: format.name(),
            tools: format.tools(),
            repetition_detection: rollout.repetition_detection,
            required_text: rollout
                .code_within_tokens
                .and_then(|tokens| RequiredText::new(format.openings(), tokens)),
            code_interpreter: format.name() == CodeInterpreterFormat.name(),
        }
    }

    /// The settings of an endpoint, with what each request asks for.
    pub fn apply(&self, options: OpenAiOptions) -> OpenAiOptions {
        options
            .with_tools(self.tools.clone())
            .with_repetition_detection(self.repetition_detection)
            .with_python_tag(self.code_interpreter)
    }

    /// [`RequestOptions::apply`] for `pybench serve` with its own engine, which knows parameters of ours.
    pub(crate) fn apply_served(&self, options: OpenAiOptions) -> OpenAiOptions {
        self.apply(options)
            .with_required_text(self.required_text.as_ref())
    }
}
