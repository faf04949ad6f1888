//! Floating-point operations that training needs, and the measured peak of a device.

use std::time::Instant;

use tch::{Device, Kind, Tensor, no_grad};

use crate::model::{Layout, ModelConfig};
use crate::torch::fused;

/// Operations of a forward and backward pass over a batch.
pub(super) fn batch_flops(config: &ModelConfig, layout: &Layout, full: bool) -> f64 {
    let documents = layout.rows().iter().flatten();
    documents
        .map(|document| document_flops(config, document.length as f64, full))
        .sum()
}

/// Operations for a document of so many tokens. Per token, a matrix needs 2 operations per element forward, and
/// twice that backward (once if it is frozen). Attention is causal. The output matrix is counted for every
/// token, although tokens without a loss weight skip it.
pub(super) fn document_flops(config: &ModelConfig, tokens: f64, full: bool) -> f64 {
    let tables = if config.tied {
        0
    } else {
        config.vocab * config.hidden
    };
    let matrices = (config.parameters() - tables) as f64;
    let width = (config.heads * config.head_dim) as f64;
    let passes = if full { 3.0 } else { 2.0 };
    let attention = 2.0 * width * tokens * tokens * config.layers as f64;
    passes * 2.0 * matrices * tokens + 3.0 * attention
}

/// Operations of a forward pass over a document, a third of those of training.
pub(super) fn forward_flops(config: &ModelConfig, tokens: f64) -> f64 {
    document_flops(config, tokens, true) / 3.0
}

/// Operations per second of a large matrix product: the best of five measurements, because other programs may
/// use the device.
pub(super) fn measured_peak(kind: Kind, device: Device) -> f64 {
    let (size, rounds) = match device {
        Device::Cuda(_) => (8192, 20),
        _ => (768, 3),
    };
    no_grad(|| {
        // Ones or zeros would be multiplied faster on a GPU.
        let a = Tensor::randn([size, size], (kind, device));
        // The same operation as in the model.
        let product = || match fused::supports(&a) {
            true => fused::linear(&a, &a, None),
            false => a.matmul(&a),
        };
        // Reading a value synchronizes with the device.
        let wait = |made: Tensor| made.get(0).get(0).double_value(&[]);
        wait(product());
        let seconds = || {
            let started = Instant::now();
            (1..rounds).for_each(|_| drop(product()));
            wait(product());
            started.elapsed().as_secs_f64()
        };
        let best = (0..5).map(|_| seconds()).fold(f64::MAX, f64::min);
        f64::from(rounds) * 2.0 * (size as f64).powi(3) / best
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_operations_per_parameter_and_token_plus_attention() {
        let json = br#"{"model_type":"llama","hidden_size":64,"intermediate_size":96,
            "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,
            "tie_word_embeddings":true}"#;
        let config = ModelConfig::parse(json).unwrap();
        let n = config.parameters() as f64;
        let two = Layout::packed(30, &[vec![10, 20]]).unwrap();
        let wanted = 6.0 * n * 30.0 + 6.0 * 64.0 * 2.0 * (100.0 + 400.0);
        assert_eq!(batch_flops(&config, &two, true), wanted);
    }
}
