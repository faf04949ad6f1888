//! The engine for CPUs computes what the forward pass of the trainer does.

use pybench_inference::{Extension, Format, KvCache, Model};
use pybench_test_needs::skip;
use pybench_training::model::load_inference;
use tch::{Device, Kind, Tensor, no_grad};

use crate::cache::full;
use crate::support::{MODELS, data, distance};

const FORMATS: [Format; 3] = [Format::Float32, Format::Bf16, Format::Int8];

fn torch(name: &str) -> pybench_training::model::Model {
    pybench_training::model::Model::load(&data(name), Kind::Float, Device::Cpu).unwrap()
}

fn packed(name: &str, format: Format) -> Model {
    load_inference(&data(name), None, format).unwrap()
}

fn ids(length: usize, seed: usize) -> Vec<i64> {
    let id = |i: usize| ((i * 7 + seed * 13 + i * i) % 47) as i64;
    (0..length).map(id).collect()
}

/// Logits after the last token.
fn extend(model: &mut Model, cache: &mut KvCache, ids: &[i64]) -> Vec<f32> {
    model.extend(&mut [Extension { cache, ids }]);
    model.logits(0).to_vec()
}

fn alone(model: &mut Model, ids: &[i64]) -> Vec<f32> {
    extend(model, &mut KvCache::default(), ids)
}

#[test]
fn logits_are_those_of_the_trainer() {
    for name in MODELS {
        let torch = torch(name);
        for (format, tolerance) in [
            (Format::Float32, 1e-5),
            (Format::Bf16, 0.08),
            (Format::Int8, 0.1),
        ] {
            let mut model = packed(name, format);
            let (mut seen, mut cache) = (ids(40, 1), KvCache::default());
            let mut logits = extend(&mut model, &mut cache, &seen);
            for next in ids(40, 5) {
                let off = distance(&Tensor::from_slice(&logits), &full(&torch, &seen));
                assert!(off <= tolerance, "{name} {format:?}: off by {off:e}");
                seen.push(next);
                logits = extend(&mut model, &mut cache, &[next]);
            }
            assert_eq!(cache.len(), seen.len());
        }
    }
}

#[test]
fn logits_depend_on_the_tokens_of_the_sequence_only() {
    for (name, format) in MODELS.into_iter().zip(FORMATS) {
        let mut model = packed(name, format);
        let all: Vec<Vec<i64>> = [5, 63, 1, 14, 100, 33].map(|n| ids(n, n)).into();
        let wanted: Vec<_> = all.iter().map(|one| alone(&mut model, one)).collect();
        // Together, and in pieces.
        let mut caches: Vec<_> = all.iter().map(|_| KvCache::default()).collect();
        let mut first: Vec<_> = caches
            .iter_mut()
            .zip(&all)
            .filter(|(_, ids)| ids.len() > 1)
            .map(|(cache, ids)| Extension {
                cache,
                ids: &ids[..ids.len() / 2],
            })
            .collect();
        model.extend(&mut first);
        let mut rest: Vec<_> = caches
            .iter_mut()
            .zip(&all)
            .map(|(cache, ids)| Extension {
                ids: &ids[cache.len()..],
                cache,
            })
            .collect();
        model.extend(&mut rest);
        for (row, wanted) in wanted.iter().enumerate() {
            assert!(model.logits(row) == wanted, "{name} {format:?} {row}");
        }
    }
}

#[test]
fn prefixes_are_shared_and_cut_without_a_trace() {
    for (name, format) in MODELS.into_iter().zip(FORMATS) {
        let mut model = packed(name, format);
        let mut other = ids(45, 2);
        other.extend(ids(12, 9));
        let wanted = alone(&mut model, &other);
        let mut first = KvCache::default();
        drop(extend(&mut model, &mut first, &ids(70, 2)));
        let mut shared = first.prefix(45);
        assert!(
            extend(&mut model, &mut shared, &other[45..]) == wanted,
            "{name}"
        );
        // The other one is as it was, and may be cut back.
        let longer = [ids(70, 2), vec![3]].concat();
        let found = extend(&mut model, &mut first, &[3]);
        assert!(found == alone(&mut model, &longer), "{name}");
        first.truncate(45);
        assert!(
            extend(&mut model, &mut first, &other[45..]) == wanted,
            "{name}"
        );
    }
}

/// The mean Kullback-Leibler divergence of next tokens from those of float32, in nats, and how often the most likely
/// token is the same.
fn divergence(wanted: &[Tensor], found: &[Tensor]) -> (f64, f64) {
    let kl = |(wanted, found): (&Tensor, &Tensor)| {
        let [p, q] = [wanted, found]
            .map(|logits| logits.to_kind(Kind::Double).log_softmax(-1, Kind::Double));
        ((&p - q) * p.exp()).sum(Kind::Double).double_value(&[])
    };
    let same = |(a, b): (&Tensor, &Tensor)| {
        a.argmax(-1, false).int64_value(&[]) == b.argmax(-1, false).int64_value(&[])
    };
    let pairs = || wanted.iter().zip(found);
    let count = wanted.len() as f64;
    (
        pairs().map(kl).sum::<f64>() / count,
        pairs().filter(|&pair| same(pair)).count() as f64 / count,
    )
}

#[test]
fn formats_stay_close_on_smollm2() {
    let folder = match pybench_training::catalog::find("smollm2-135m-instruct") {
        Ok(folder) => folder,
        Err(error) => return skip::missing_tool(format_args!("{error:#}")),
    };
    let load = || pybench_training::model::Model::load(&folder, Kind::Float, Device::Cpu).unwrap();
    let json = std::fs::read(data("smollm2.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let ids = expected["conversations"][0]["ids"].clone();
    let ids: Vec<i64> = serde_json::from_value(ids).unwrap();
    let ids = &ids[..ids.len().min(160)];
    let layout = std::sync::Arc::new(pybench_training::model::Layout::plain(1, ids.len() as i64));
    let all = no_grad(|| load().logits(&Tensor::from_slice(ids).unsqueeze(0), &layout)).get(0);
    let wanted: Vec<_> = (0..ids.len() as i64).map(|i| all.get(i)).collect();
    for (format, kl, agreement) in [
        (Format::Float32, 1e-8, 1.0),
        (Format::Bf16, 2e-3, 0.9),
        (Format::Int8, 3e-2, 0.8),
    ] {
        let mut model = load_inference(&folder, None, format).unwrap();
        let mut cache = KvCache::default();
        let one = |id: &i64| Tensor::from_slice(&extend(&mut model, &mut cache, &[*id]));
        let found: Vec<_> = ids.iter().map(one).collect();
        let (off, same) = divergence(&wanted, &found);
        println!(
            "{format:?}: {off:.1e} nats, {:.1} % of the most likely tokens",
            100.0 * same
        );
        assert!(
            off <= kl && same >= agreement,
            "{format:?}: {off:e} nats, {same}"
        );
    }
}
