//! Chat templates: one reader serves the trainer and this program. Tests build it without the engine, so that a
//! change over there is seen here.

#[path = "../../training/src/data/json.rs"]
mod json;
#[path = "../../training/src/data/message.rs"]
mod message;
#[path = "../../training/src/data/template.rs"]
mod template;

pub(crate) use message::Message;
pub(crate) use template::{ChatTemplate, Piece, TemplateError};
