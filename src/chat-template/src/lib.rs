//! Renders conversations with a model's own chat template, as transformers does.

mod annotate;
mod call_block;
mod call_format;
mod call_parser;
mod controls;
mod json;
mod marked_text;
mod marks;
mod message;
mod placement;
mod python;
mod replies;
mod template;

pub use annotate::{AnnotatedText, MessagePart};
pub use call_block::{CallBlock, call_fields};
pub use call_format::{CallFormat, CallSyntax};
pub use call_parser::{
    CALL_TAGS, CallParser, CallableTools, PYTHON_TAG, ReplyPart, ToolCall, tool_name,
};
pub use chrono::NaiveDate;
pub use marked_text::{Piece, RenderedText};
pub use message::{Chat, Message, Weight};
pub use template::{ChatTemplate, TemplateError, tool_calls_json};
