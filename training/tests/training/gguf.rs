//! Exported files, read again by our own reader; `just parity` has llama.cpp read them.

use std::path::{Path, PathBuf};

use pybench_training::gguf::{Gguf, GgufType, convert, export};
use pybench_training::model::{Model, ModelConfig, save_model};
use tch::{Device, Kind, Tensor};

use crate::support::{data, distance};

/// A directory with a random model of that configuration and a tokenizer as SmolLM2 has it.
fn folder(at: &Path, name: &str, changes: &[(&str, serde_json::Value)]) -> PathBuf {
    let folder = at.join(name);
    std::fs::create_dir(&folder).unwrap();
    let template = data("templates/chatml");
    std::fs::copy(
        template.join("tokenizer_config.json"),
        folder.join("tokenizer_config.json"),
    )
    .unwrap();
    let text = std::fs::read_to_string(template.join("tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&text).unwrap();
    tokenizer["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    ]});
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = std::fs::read_to_string(data(name).join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["vocab_size"] = 520.into();
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    let config = ModelConfig::parse(config.to_string().as_bytes()).unwrap();
    let model = Model::random(config, 5, Kind::Float, Device::Cpu);
    save_model(&model, &folder, &folder).unwrap();
    folder
}

fn load(folder: &Path) -> Model {
    Model::load(folder, Kind::Float, Device::Cpu).unwrap()
}

#[test]
fn what_is_exported_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let plain = [
        ("rope_scaling", serde_json::Value::Null),
        ("rope_parameters", serde_json::Value::Null),
    ];
    for name in ["llama", "qwen2"] {
        let folder = folder(place.path(), name, &plain);
        for (kind, most) in [(GgufType::F16, 6e-4), (GgufType::Q8_0, 1e-2)] {
            let file = place.path().join(format!("{name}.{kind:?}.gguf"));
            export(&folder, &file, kind).unwrap();
            let back = place.path().join(format!("{name}.{kind:?}"));
            convert(&file, &back).unwrap();
            let (first, second) = (load(&folder), load(&back));
            for ((name, a), (_, b)) in first.parameters().iter().zip(second.parameters()) {
                let off = distance(&b, a);
                assert!(off <= most, "{name} {kind:?}: off by {off:e}");
            }
            let layout = std::sync::Arc::new(pybench_training::model::Layout::plain(1, 20));
            let ids =
                Tensor::from_slice(&(0..20i64).map(|i| i * 25).collect::<Vec<_>>()).unsqueeze(0);
            let logits = |model: &Model| tch::no_grad(|| model.logits(&ids, &layout));
            let off = distance(&logits(&second), &logits(&first));
            assert!(off <= 20.0 * most, "{name} {kind:?}: logits off by {off:e}");
            // Tokens and template are the model's own.
            let texts = |folder: &Path| {
                let renderer = pybench_training_data::Renderer::load(folder).unwrap();
                renderer
                    .render(&[pybench_training_data::Message::new("user", "a 12 你好")])
                    .unwrap()
                    .ids
            };
            assert_eq!(texts(&back), texts(&folder));
        }
    }
}

#[test]
fn scaled_frequencies_are_written_as_factors() {
    let place = tempfile::tempdir().unwrap();
    let folder = folder(place.path(), "llama", &[]);
    let file = place.path().join("scaled.gguf");
    export(&folder, &file, GgufType::F16).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let (shape, factors) = Gguf::parse(&bytes)
        .unwrap()
        .numbers("rope_freqs.weight")
        .unwrap();
    let config = load(&folder).config;
    assert_eq!(shape, [config.head_dim as u64 / 2]);
    assert!(
        factors.iter().any(|&f| f > 1.0) && factors.iter().all(|&f| f >= 1.0),
        "{factors:?}"
    );
}

#[test]
fn what_llama_cpp_would_read_otherwise_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let windowed = folder(place.path(), "mistral", &[]);
    let file = place.path().join("out.gguf");
    let error = export(&windowed, &file, GgufType::F16)
        .unwrap_err()
        .to_string();
    assert!(error.contains("sliding window"), "{error}");
    let plain = folder(place.path(), "llama", &[]);
    std::fs::copy(
        data("templates/chatml/tokenizer.json"),
        plain.join("tokenizer.json"),
    )
    .unwrap();
    let path = plain.join("tokenizer.json");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("ByteLevel", "Metaspace");
    std::fs::write(&path, text).unwrap();
    assert!(export(&plain, &file, GgufType::F16).is_err());
    assert!(!file.exists(), "a refused export leaves no file");
}
