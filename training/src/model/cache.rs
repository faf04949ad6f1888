//! Generation: keys and values of tokens that were seen are kept, so that each token is computed once.

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

use super::llama::Context;
use super::{Layout, Model};

/// Fewest tokens that room is made for.
const LEAST_ROOM: i64 = 64;

/// Rotated keys and values of one sequence, of every block: `[1, key heads, room, head_dim]`, of which
/// the first [`Self::len`] tokens count.
#[derive(Debug, Default)]
pub struct KvCache {
    layers: Vec<[Tensor; 2]>,
    length: i64,
}

/// New tokens of one sequence, to be computed after those of its cache.
#[derive(Debug)]
pub struct Extension<'a> {
    /// What came before; it grows by `ids`.
    pub cache: &'a mut KvCache,
    /// The new tokens, at least one, each within the vocabulary.
    pub ids: &'a [i64],
}

impl KvCache {
    /// Tokens it holds.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all but the first `length` tokens; the room stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length as i64);
    }

    /// A cache of its own with the first `length` tokens.
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

    /// Bytes that it occupies.
    pub fn bytes(&self) -> usize {
        let parts = self.layers.iter().flatten();
        parts
            .map(|part| part.numel() * part.kind().elt_size_in_bytes())
            .sum()
    }

    /// Makes room for `more` tokens, at least doubling, so that growth costs little in all.
    fn reserve(&mut self, more: i64, model: &Model) {
        let wanted = self.length + more;
        let room = self.layers.first().map_or(0, |pair| pair[0].size()[2]);
        if wanted <= room {
            return;
        }
        let room = wanted.max(2 * room).max(LEAST_ROOM);
        let size = [1, model.config.kv_heads, room, model.config.head_dim];
        let empty = || Tensor::zeros(size, (model.embed.kind(), model.embed.device()));
        let mut grown: Vec<[Tensor; 2]> = model.blocks.iter().map(|_| [empty(), empty()]).collect();
        for (new, old) in grown.iter_mut().flatten().zip(self.layers.iter().flatten()) {
            new.narrow(2, 0, self.length)
                .copy_(&old.narrow(2, 0, self.length));
        }
        self.layers = grown;
    }

    /// Puts keys and values of new tokens in and gives the tensors with all of them.
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
    /// Computes new tokens of several sequences at once and gives the logits after the last of each,
    /// `[sequences, vocab]` in float32. Matrices see all tokens together, attention each sequence.
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
            let mut x = self.embedded(&row(&ids));
            for (layer, block) in self.blocks.iter().enumerate() {
                x = block.apply(&x, &context, |q, k, v| {
                    each_sequence(extensions, layer, block.window, [q, k, v])
                });
            }
            for one in extensions.iter_mut() {
                one.cache.length += one.ids.len() as i64;
            }
            let last = x
                .squeeze_dim(0)
                .index_select(0, &Tensor::from_slice(&ends).to_device(device));
            self.normalised(&last)
                .linear(self.head(), None::<Tensor>)
                .to_kind(Kind::Float)
        })
    }
}

/// Attention of `[1, heads, tokens of all, head_dim]`, each sequence over its own cache.
fn each_sequence(
    extensions: &[Extension<'_>],
    layer: usize,
    window: Option<i64>,
    qkv: [&Tensor; 3],
) -> Tensor {
    let mut start = 0;
    let pieces = extensions.iter().map(|one| {
        let count = one.ids.len() as i64;
        let [q, k, v] = qkv.map(|tensor| tensor.narrow(2, start, count));
        start += count;
        let [k, v] = one.cache.push(layer, &k, &v);
        attend_cached(&q, &k, &v, window)
    });
    Tensor::cat(&pieces.collect::<Vec<_>>(), 2)
}

/// Queries are the last tokens of the keys; token i sees `window` tokens up to itself.
fn attend_cached(q: &Tensor, k: &Tensor, v: &Tensor, window: Option<i64>) -> Tensor {
    let (count, total) = (q.size()[2], k.size()[2]);
    let past = total - count;
    let window = window.filter(|&window| window < total);
    if count == 1 {
        // One query sees all that is left to it: no mask.
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
