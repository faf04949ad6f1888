//! The Llama family: configuration, forward pass, Hugging Face directories in and out.

mod attention;
mod cache;
mod config;
mod layout;
mod llama;
mod load;
mod loss;
mod nf4;
mod residence;
mod save;

pub use cache::{Extension, KvCache};
pub use config::{ConfigError, ModelConfig, RopeScaling};
pub use layout::{Document, Layout};
pub use llama::{Block, Dropout, Linear, Lora, Model, Recomputation};
pub(crate) use load::read_bounded;
pub use load::{LoadError, Weights, load_config};
pub(crate) use loss::chunk_elements;
pub use loss::{Loss, Targets};
pub use nf4::Nf4;
pub use residence::{Residence, Stay};
pub(crate) use save::write_json;
pub use save::{SafetensorsWriter, save_model};
