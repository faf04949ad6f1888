//! From documents on disk or on the Hub to batches: sources, the typed renderer, the store of tokens,
//! packing.

mod facts;
mod hub;
mod json;
mod lines;
mod message;
mod notebook;
mod pack;
mod preflight;
mod render;
mod source;
mod store;
mod table;
mod template;
mod tokenize;
mod tokenizer;

pub use facts::Facts;
pub(crate) use hub::hub_model;
pub use message::{Conversation, Message, Record};
pub use pack::{Bins, pack};
pub use preflight::{Preflight, judge, preflight};
pub use render::{Overflow, OverflowReport, Rendered, Renderer, Span, fit};
pub use source::{About, Kind, Located, Source, SourceError, read};
pub use store::{Class, StoreError, TokenStore};
pub use template::{ChatTemplate, Piece, TemplateError};
pub use tokenize::{Fitting, TokenizeError, tokenize};
pub(crate) use tokenizer::chat_template;
pub use tokenizer::{Encoded, TextTokenizer, TokenizerError};
