//! Generation with a cache of keys and values, so that each token is computed once.

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

use super::layout::Layout;
use super::llama::{Context, Model, multiplied};
use crate::torch::fused::{self, Sequences};
use crate::torch::kernels;

/// The smallest capacity of a cache, in tokens.
const MIN_CAPACITY: i64 = 64;

/// Rotated keys and values of one sequence for every block: `[1, key heads, capacity, head_dim]`, of which the
/// first [`Self::len`] tokens are valid.
#[derive(Debug, Default)]
pub struct KvCache {
    layers: Vec<[Tensor; 2]>,
    length: i64,
}

/// New tokens that continue a cached sequence.
#[derive(Debug)]
pub struct Extension<'a> {
    /// The tokens before; `ids` are appended to it.
    pub cache: &'a mut KvCache,
    /// At least one token; each must be in the vocabulary.
    pub ids: &'a [i64],
}

impl KvCache {
    pub fn len(&self) -> usize {
        self.length as usize
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Keeps only the first `length` tokens; the capacity stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length as i64);
    }

    /// A copy of the first `length` tokens.
    pub fn prefix(&self, length: usize) -> Self {
        let length = self.length.min(length as i64);
        let layers = self.layers.iter();
        Self {
            layers: layers
                .map(|pair| pair.each_ref().map(|part| part.narrow(2, 0, length).copy()))
                .collect(),
            length,
        }
    }

    pub fn bytes(&self) -> usize {
        let parts = self.layers.iter().flatten();
        parts
            .map(|part| part.numel() * part.kind().elt_size_in_bytes())
            .sum()
    }

    /// Ensures capacity for `more` tokens. Capacity at least doubles, so growth has amortized constant cost.
    fn reserve(&mut self, more: i64, model: &Model) {
        let wanted = self.length + more;
        let capacity = self.layers.first().map_or(0, |pair| pair[0].size()[2]);
        if wanted <= capacity {
            return;
        }
        let capacity = wanted.max(2 * capacity).max(MIN_CAPACITY);
        let size = [1, model.config.kv_heads, capacity, model.config.head_dim];
        let empty = || Tensor::zeros(size, (model.embed.kind(), model.embed.device()));
        let mut grown: Vec<[Tensor; 2]> = model.blocks.iter().map(|_| [empty(), empty()]).collect();
        for (new, old) in grown.iter_mut().flatten().zip(self.layers.iter().flatten()) {
            new.narrow(2, 0, self.length)
                .copy_(&old.narrow(2, 0, self.length));
        }
        self.layers = grown;
    }

    /// Appends keys and values, and returns the tensors with all of them.
    fn push(&self, layer: usize, k: &Tensor, v: &Tensor) -> [Tensor; 2] {
        let count = k.size()[2];
        let put = |part: &Tensor, new: &Tensor| {
            part.narrow(2, self.length, count).copy_(new);
            part.narrow(2, 0, self.length + count)
        };
        let [keys, values] = &self.layers[layer];
        [put(keys, k), put(values, v)]
    }
}

impl Model {
    /// Computes new tokens of several sequences together. Returns the logits after the last token of each,
    /// `[sequences, vocab]` in float32. Matrix products use all tokens at once, attention each sequence.
    pub fn extend(&self, extensions: &mut [Extension<'_>]) -> Tensor {
        no_grad(|| {
            let (mut ids, mut positions, mut ends) = (vec![], vec![], vec![]);
            for one in extensions.iter_mut() {
                one.cache.reserve(one.ids.len() as i64, self);
                ids.extend_from_slice(one.ids);
                positions.extend((0..one.ids.len() as i64).map(|i| one.cache.length + i));
                ends.push(ids.len() as i64 - 1);
            }
            let device = self.embed.device();
            let row = |numbers: &[i64]| Tensor::from_slice(numbers).to_device(device).unsqueeze(0);
            let layout = Arc::new(Layout::plain(1, ids.len() as i64));
            let context = Context::at(self, &layout, &row(&positions));
            let packed =
                kernels::apply_to(&self.embed).then(|| PackedLengths::new(extensions, device));
            let mut x = self.embed_tokens(&row(&ids));
            for (layer, block) in self.blocks.iter().enumerate() {
                x = block.apply(&x, &context, |q, k, v| {
                    let (caches, qkv) = (&*extensions, [q, k, v]);
                    match &packed {
                        Some(lengths) if fused::supports_packed_attention(q) => {
                            attend_packed(caches, lengths, layer, block.window, qkv)
                        }
                        _ => attend_per_sequence(caches, layer, block.window, qkv),
                    }
                });
            }
            for one in extensions.iter_mut() {
                one.cache.length += one.ids.len() as i64;
            }
            let last = x
                .squeeze_dim(0)
                .index_select(0, &Tensor::from_slice(&ends).to_device(device));
            multiplied(&self.final_norm(&last), self.head(), None).to_kind(Kind::Float)
        })
    }
}

/// Lengths of several sequences, with the new tokens and of those alone, on the device.
struct PackedLengths {
    queries: Sequences,
    keys: Sequences,
}

impl PackedLengths {
    fn new(extensions: &[Extension<'_>], device: Device) -> Self {
        let new = |one: &Extension<'_>| one.ids.len() as i64;
        let sequences = |length: &dyn Fn(&Extension<'_>) -> i64| {
            let mut offsets = vec![0];
            for one in extensions {
                offsets.push(offsets[offsets.len() - 1] + length(one) as i32);
            }
            Sequences {
                offsets: Tensor::from_slice(&offsets).to_device(device),
                longest: extensions.iter().map(length).max().unwrap_or(0),
            }
        };
        Self {
            queries: sequences(&new),
            keys: sequences(&|one| one.cache.length + new(one)),
        }
    }
}

/// Adds the new keys and values of each sequence to its cache. Returns the first of its tokens, and all its keys and values.
fn cached(
    extensions: &[Extension<'_>],
    layer: usize,
    new: [&Tensor; 2],
) -> impl Iterator<Item = (i64, [Tensor; 2])> {
    let mut end = 0;
    extensions.iter().map(move |one| {
        let (start, count) = (end, one.ids.len() as i64);
        end += count;
        let [k, v] = new.map(|tensor| tensor.narrow(2, start, count));
        (start, one.cache.push(layer, &k, &v))
    })
}

/// As [`attend_per_sequence`], by one kernel for all sequences over a copy of their caches side by side.
fn attend_packed(
    extensions: &[Extension<'_>],
    lengths: &PackedLengths,
    layer: usize,
    window: Option<i64>,
    [q, k, v]: [&Tensor; 3],
) -> Tensor {
    let tokens = |part: &Tensor| part.squeeze_dim(0).transpose(0, 1);
    let cached = cached(extensions, layer, [k, v]);
    let (keys, values): (Vec<_>, Vec<_>) =
        cached.map(|(_, [k, v])| (tokens(&k), tokens(&v))).unzip();
    let [k, v] = [keys, values].map(|parts| Tensor::cat(&parts, 0));
    let attended = fused::attend_cached(
        [&tokens(q), &k, &v],
        &lengths.queries,
        &lengths.keys,
        window,
    );
    attended.transpose(0, 1).unsqueeze(0)
}

/// Attention of `[1, heads, tokens of all, head_dim]`, each sequence over its own cache.
fn attend_per_sequence(
    extensions: &[Extension<'_>],
    layer: usize,
    window: Option<i64>,
    [q, k, v]: [&Tensor; 3],
) -> Tensor {
    let cached = cached(extensions, layer, [k, v]);
    let parts = extensions.iter().zip(cached).map(|(one, (start, [k, v]))| {
        let q = q.narrow(2, start, one.ids.len() as i64);
        attend_cached(&q, &k, &v, window)
    });
    Tensor::cat(&parts.collect::<Vec<_>>(), 2)
}

/// The queries are the last tokens of the keys. Token i attends to `window` tokens including itself.
fn attend_cached(q: &Tensor, k: &Tensor, v: &Tensor, window: Option<i64>) -> Tensor {
    let (count, total) = (q.size()[2], k.size()[2]);
    let past = total - count;
    let window = window.filter(|&window| window < total);
    if count == 1 {
        // A single query attends to all remaining keys: no mask is needed.
        let seen = window.unwrap_or(total);
        let [k, v] = [k, v].map(|part| part.narrow(2, total - seen, seen));
        return Tensor::scaled_dot_product_attention(
            q,
            &k,
            &v,
            None::<&Tensor>,
            0.0,
            false,
            None,
            true,
        );
    }
    if past == 0 && window.is_none() {
        return Tensor::scaled_dot_product_attention(
            q,
            k,
            v,
            None::<&Tensor>,
            0.0,
            true,
            None,
            true,
        );
    }
    let all = Tensor::ones([count, total], (Kind::Bool, q.device()));
    let mut mask = all.tril(past);
    if let Some(window) = window {
        mask = mask.logical_and(&all.triu(past + 1 - window));
    }
    Tensor::scaled_dot_product_attention(q, k, v, Some(&mask), 0.0, false, None, true)
}
