//! From conversations on disk to batches: sources, the typed renderer, packing.

mod message;
mod pack;
mod preflight;
mod render;
mod source;
mod template;
mod tokenizer;

pub use message::{Conversation, Message};
pub use pack::{Bins, pack};
pub use preflight::{Preflight, preflight};
pub use render::{Overflow, OverflowReport, Rendered, Renderer, Span, fit};
pub use source::{Source, SourceError, read};
pub use template::{ChatTemplate, Piece, TemplateError};
pub(crate) use tokenizer::chat_template;
pub use tokenizer::{Encoded, TextTokenizer, TokenizerError};
