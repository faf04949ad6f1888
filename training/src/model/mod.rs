//! The Llama family: configuration, forward pass, loss, loading and saving of Hugging Face directories.

mod attention;
mod cache;
mod config;
mod layout;
mod llama;
mod load;
mod loss;
mod nf4;
mod save;
mod sharding;

pub use cache::{Extension, KvCache};
pub use config::{ConfigError, ModelConfig, RopeScaling};
pub use layout::{Document, Layout};
pub use llama::{Block, Dropout, GradientCheckpointing, Linear, Lora, Model};
pub use load::{LoadError, Weights, load_config};
pub(crate) use loss::chunk_elements;
pub use loss::{Loss, Targets};
pub use nf4::Nf4;
pub(crate) use save::write_json;
pub use save::{SafetensorsWriter, save_model};
pub use sharding::{GatherGuard, ParamSharding};
