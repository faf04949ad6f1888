//! Generation with kept keys and values is the full forward pass, token by token.

use std::sync::Arc;

use pybench_training::model::{Extension, KvCache, Layout, Model};
use pybench_training::torch::kernels::Emulation;
use tch::{Device, Kind, Tensor, no_grad};

use crate::support::{MODELS, data, distance};

const TOLERANCE: f64 = 1e-5;

fn load(name: &str) -> Model {
    Model::load(&data(name), Kind::Float, Device::Cpu).unwrap()
}

fn ids(length: usize, seed: usize) -> Vec<i64> {
    (0..length)
        .map(|i| ((i * 7 + seed * 13 + i * i) % 47) as i64)
        .collect()
}

/// Logits after the last token, by a forward pass over all of them.
pub(crate) fn full(model: &Model, ids: &[i64]) -> Tensor {
    let layout = Arc::new(Layout::plain(1, ids.len() as i64));
    let batch = Tensor::from_slice(ids).unsqueeze(0);
    no_grad(|| model.logits(&batch, &layout))
        .get(0)
        .get(ids.len() as i64 - 1)
}

fn extend(model: &Model, cache: &mut KvCache, ids: &[i64]) -> Tensor {
    model.extend(&mut [Extension { cache, ids }]).get(0)
}

fn same(found: &Tensor, wanted: &Tensor, what: &str) {
    let off = distance(found, wanted);
    assert!(off <= TOLERANCE, "{what}: off by {off:e}");
    let best = |logits: &Tensor| logits.argmax(-1, false).int64_value(&[]);
    assert_eq!(best(found), best(wanted), "{what}");
}

#[test]
fn greedy_tokens_are_those_of_a_full_pass() {
    for name in MODELS {
        let model = load(name);
        let mut seen = ids(9, 1);
        let mut cache = KvCache::default();
        // The prompt comes in pieces, as a long one does.
        drop(extend(&model, &mut cache, &seen[..4]));
        let mut logits = extend(&model, &mut cache, &seen[4..]);
        for _ in 0..70 {
            same(&logits, &full(&model, &seen), name);
            let next = logits.argmax(-1, false).int64_value(&[]);
            seen.push(next);
            logits = extend(&model, &mut cache, &[next]);
        }
        assert_eq!(cache.len(), seen.len());
    }
}

#[test]
fn other_sequences_in_a_pass_change_nothing() {
    sequences_beside_others();
}

#[test]
fn other_sequences_in_a_pass_change_nothing_on_an_emulated_gpu() {
    let _emulation = Emulation::begin();
    sequences_beside_others();
}

fn sequences_beside_others() {
    for name in MODELS {
        let model = load(name);
        let all: Vec<Vec<i64>> = [5, 23, 1, 14].iter().map(|&n| ids(n, n)).collect();
        let mut caches: Vec<KvCache> = all.iter().map(|_| KvCache::default()).collect();
        // Prompts first, then a token each: long and short ones mixed.
        for (from, to) in [(0, 1), (1, 2)] {
            let parts = all.iter().map(|one| {
                let cut = one.len().div_ceil(2);
                match (from, to) {
                    (0, 1) => &one[..cut],
                    _ => &one[cut..],
                }
            });
            let mut extensions: Vec<Extension<'_>> = caches
                .iter_mut()
                .zip(parts)
                .filter(|(_, ids)| !ids.is_empty())
                .map(|(cache, ids)| Extension { cache, ids })
                .collect();
            let logits = model.extend(&mut extensions);
            let lengths: Vec<usize> = extensions.iter().map(|e| e.cache.len()).collect();
            for (row, length) in lengths.into_iter().enumerate() {
                let of = all
                    .iter()
                    .filter(|one| to == 1 || one.len() > 1)
                    .nth(row)
                    .unwrap();
                same(&logits.get(row as i64), &full(&model, &of[..length]), name);
            }
        }
    }
}

#[test]
fn a_shared_beginning_is_as_good_as_a_fresh_one() {
    for name in MODELS {
        let model = load(name);
        let mut first = KvCache::default();
        drop(extend(&model, &mut first, &ids(40, 2)));
        let mut other = ids(25, 2);
        other.extend(ids(12, 9));
        let wanted = full(&model, &other);
        let mut copied = first.prefix(25);
        same(&extend(&model, &mut copied, &other[25..]), &wanted, name);
        // The copy left the first one as it was, which may be cut back and go on itself.
        let mut on = ids(40, 2);
        on.push(3);
        same(&extend(&model, &mut first, &[3]), &full(&model, &on), name);
        first.truncate(25);
        same(&extend(&model, &mut first, &other[25..]), &wanted, name);
    }
}
