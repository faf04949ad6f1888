//! Causal attention within documents.

use tch::{Device, Kind, Tensor};

use super::Layout;
use crate::torch::fused::{self, Sequences};

/// Attention of queries `[rows, heads, width, head_dim]` over keys and values with fewer heads.
/// Attention stays within each document, so nothing leaks between packed ones. The result at padding is
/// undefined. `sequences` are those of the layout, if the GPU kernels need them.
pub(super) fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    layout: &Layout,
    sequences: Option<&Sequences>,
    window: Option<i64>,
) -> Tensor {
    if let Some(sequences) = sequences
        && fused::supports_packed_attention(q)
    {
        return fused::attend_packed([q, k, v], sequences, window);
    }
    let longest = layout.rows().iter().flatten().map(|d| d.length).max();
    if q.device() == Device::Cpu
        && fused::supports(q)
        && longest.is_some_and(|l| window.is_none_or(|window| window >= l))
    {
        return fused::attend(q, k, v, &layout.documents());
    }
    if layout.is_plain() {
        return causal(q, k, v, window);
    }
    let rows = layout.rows().iter().enumerate().map(|(row, documents)| {
        let row = row as i64;
        let [q, k, v] = [q, k, v].map(|tensor| tensor.narrow(0, row, 1));
        let mut end = 0;
        let mut parts = Vec::with_capacity(2 * documents.len() + 1);
        for document in documents {
            if document.start > end {
                parts.push(zeros(&q, document.start - end));
            }
            let [q, k, v] =
                [&q, &k, &v].map(|tensor| tensor.narrow(2, document.start, document.length));
            parts.push(causal(&q, &k, &v, window));
            end = document.start + document.length;
        }
        if layout.width() > end {
            parts.push(zeros(&q, layout.width() - end));
        }
        Tensor::cat(&parts, 2)
    });
    Tensor::cat(&rows.collect::<Vec<_>>(), 0)
}

fn zeros(like: &Tensor, width: i64) -> Tensor {
    let size = like.size();
    Tensor::zeros(
        [size[0], size[1], width, size[3]],
        (like.kind(), like.device()),
    )
}

fn causal(q: &Tensor, k: &Tensor, v: &Tensor, window: Option<i64>) -> Tensor {
    let length = q.size()[2];
    let mask = window.filter(|&window| window < length).map(|window| {
        let all = Tensor::ones([length, length], (Kind::Bool, q.device()));
        // Token i attends to tokens i - window + 1 to i, as in transformers.
        all.tril(0).logical_and(&all.triu(1 - window))
    });
    let is_causal = mask.is_none();
    if q.device().is_cuda() {
        // The kernel that needs little memory in float32 knows no groups of heads.
        let group = q.size()[1] / k.size()[1];
        let [k, v] = [k, v].map(|part| part.repeat_interleave_self_int(group, 1, None));
        return Tensor::scaled_dot_product_attention(q, &k, &v, mask, 0.0, is_causal, None, false);
    }
    Tensor::scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, None, true)
}
