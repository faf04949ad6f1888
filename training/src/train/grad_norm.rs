//! The norm of gradients.

use tch::{Device, Kind, Tensor};

/// Elements whose norm is computed at once if they must be converted to float32 first.
const NORM_CHUNK: i64 = 1 << 22;

/// The sum of squares of all elements.
pub(super) fn square_norm(gradients: &[Option<Tensor>]) -> f64 {
    let chunks = |gradient: &Tensor| match (gradient.kind(), gradient.device()) {
        (Kind::BFloat16, Device::Cpu) => gradient.split(NORM_CHUNK, 0),
        _ => vec![gradient.shallow_clone()],
    };
    let norms: Vec<Tensor> = gradients
        .iter()
        .flatten()
        .flat_map(chunks)
        .map(|g| g.norm_scalaropt_dtype(2, Kind::Float))
        .collect();
    match norms.is_empty() {
        true => 0.0,
        false => {
            let norms = Tensor::stack(&norms, 0).to_kind(Kind::Double);
            norms.square().sum(Kind::Double).double_value(&[])
        }
    }
}
