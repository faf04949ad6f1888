//! The Llama family: configuration, forward pass, loss, loading and saving of Hugging Face directories.

mod adapter;
mod attention;
mod cache;
mod checkpointing;
mod config;
mod inference;
mod layout;
mod llama;
mod load;
mod loss;
mod merge;
mod nf4;
mod save;
mod sharding;

pub use adapter::{
    Adapter, AdapterOrigin, AdapterSettings, is_adapter, save_adapter, weights_fingerprint,
};
pub use cache::{Extension, KvCache};
pub use checkpointing::GradientCheckpointing;
pub use config::{ConfigError, ModelConfig, RopeScaling};
pub use inference::load_inference;
pub use layout::{Document, Layout};
pub use llama::{Block, Dropout, Linear, Lora, Model};
pub use load::{LoadError, LoadOptions, Weights, load_config, release_mapped_weights};
pub(crate) use loss::chunk_elements;
pub use loss::{DocumentLoss, HeadBackward, Loss, Targets};
pub use merge::merge_adapter;
pub use nf4::{Nf4, ScaleFormat};
pub(crate) use save::write_json;
pub use save::{SafetensorsWriter, SaveError, save_model, save_model_with};
pub use sharding::{GatherGuard, ParamSharding, ShardUnit};
