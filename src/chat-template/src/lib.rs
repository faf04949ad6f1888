//! Renders conversations with a model's own chat template, as transformers does.

mod json;
mod message;
mod template;

pub use message::Message;
pub use template::{ChatTemplate, Segment, TemplateError, tool_calls_json};
