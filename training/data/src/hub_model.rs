//! Model repositories of the Hugging Face Hub.

use std::path::PathBuf;

use hf_hub::{HFClient, split_id};

use crate::hub_client::{HubError, offline};

/// Files of a model directory; weights in other formats are not downloaded.
const FILE_PATTERNS: [&str; 4] = ["*.json", "model*.safetensors", "*.jinja", "merges.txt"];

/// The directory of a model; downloads it if it is not in the cache. A gated model needs `HF_TOKEN`.
pub fn fetch_model(repository: &str) -> Result<PathBuf, HubError> {
    let failed = |error: hf_hub::HFError| HubError::Unreachable {
        repository: repository.into(),
        revision: "main".into(),
        reason: error.to_string(),
    };
    let client = HFClient::builder().build_sync().map_err(failed)?;
    let (owner, name) = split_id(repository);
    let model = client.model(owner, name);
    let snapshot = |cached: bool| {
        let patterns = FILE_PATTERNS.map(str::to_owned).to_vec();
        let request = model.snapshot_download().allow_patterns(patterns);
        request.local_files_only(cached).send()
    };
    if offline() {
        return snapshot(true).map_err(failed);
    }
    snapshot(false).or_else(|error| snapshot(true).map_err(|_| failed(error)))
}
