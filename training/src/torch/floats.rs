//! Numbers of tensors.

use tch::{Device, Kind, Tensor};

/// The numbers of a tensor in main memory, row after row, as float32.
pub fn floats(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.detach().to_device(Device::Cpu);
    let flat = flat.to_kind(Kind::Float).contiguous();
    let mut out = vec![0.0; flat.numel()];
    let count = out.len();
    flat.copy_data(&mut out, count);
    out
}
