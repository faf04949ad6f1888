//! Data sources, chat rendering, tokenization and packing.

mod called_tools;
mod file;
mod hub_client;
mod hub_dataset;
mod hub_model;
mod lines;
mod notebook;
mod pack;
mod preference;
mod preflight;
mod reader;
mod record;
mod remote;
mod render;
mod source;
mod store;
mod table;
mod token_stats;
mod tokenize;
mod tokenizer;

pub use called_tools::{opening_of_text_call, with_calls_as_text};
pub use file::{FileError, read_bounded};
pub use hub_client::{HubError, is_repo_id};
pub use hub_model::fetch_model;
pub use pack::{Bins, pack};
pub use preflight::{Preflight, judge, preflight};
pub use pybench_chat_template::{
    CALL_TAGS, CallFormat, CallParser, CallSyntax, CallableTools, Chat, ChatTemplate, Message,
    NaiveDate, PYTHON_TAG, Piece, RenderedText, ReplyPart, TemplateError, ToolCall, Weight,
    tool_name,
};
pub use reader::{RecordKind, SourceError};
pub use record::{Conversation, Preference, Record};
pub use remote::{RemoteError, fetch_remote, is_address};
pub use render::{Overflow, OverflowReport, Rendered, Renderer, Span, fit_to_length};
pub use source::{ResolvedSource, SizeHint, Source, difficulties, read};
pub use store::{StoreError, TokenClass, TokenStore};
pub use token_stats::TokenStats;
pub use tokenize::{LengthLimit, TokenizeError, tokenize};
pub use tokenizer::chat_template;
pub use tokenizer::{Encoded, TextTokenizer, TokenizerError};
