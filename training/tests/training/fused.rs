//! Fused operations, by the loops of the CPU and by the kernels of GPUs, which are emulated: values and
//! every gradient against the plain formulas in float64, whose gradients are autograd's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pybench_training::torch::fused::{self, Targets};
use pybench_training::torch::kernels::Emulation;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

use crate::support::distance;

const EPSILON: f64 = 1e-5;

/// The product of bf16 matrices in float32, as processors without AVX-512 compute it: also with more columns than are
/// held at a time, and of transposed matrices.
#[test]
fn a_widened_product_is_that_of_float32_rounded_once() {
    let half = |shape: &[i64], seed| random(shape, seed).to_kind(Kind::BFloat16);
    let cases = [
        (half(&[5, 64], 1), half(&[48, 64], 2)),
        (half(&[4, 70_000], 3), half(&[300, 70_000], 4)),
        (half(&[64, 5], 5).tr(), half(&[64, 48], 6).tr()),
        (half(&[7, 3], 7), half(&[0, 3], 8)),
    ];
    for (x, matrix) in cases {
        let found = fused::widened_product(&x, &matrix);
        let wanted = x
            .to_kind(Kind::Double)
            .matmul(&matrix.to_kind(Kind::Double).tr());
        assert_eq!(
            (found.kind(), found.size()),
            (Kind::BFloat16, wanted.size())
        );
        // Half a unit in the last place of bf16, beside the largest value.
        let most = wanted.abs().clamp_min(1.0) * 2f64.powi(-8);
        let apart = (found.to_kind(Kind::Double) - &wanted).abs() - most;
        assert!(
            apart.numel() == 0 || apart.max().double_value(&[]) < 1e-3,
            "{apart}"
        );
    }
}

/// Normal numbers. libtorch's generator is the whole process's: other tests draw from it.
fn random(shape: &[i64], seed: u64) -> Tensor {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
    let count: i64 = shape.iter().product();
    Tensor::from_slice(&(0..count).map(|_| draw()).collect::<Vec<f32>>()).view(shape)
}

/// Results and the gradients of all inputs, for a loss that weighs every result at random.
fn differentiate(inputs: &[Tensor], operation: &dyn Fn(&[Tensor]) -> Vec<Tensor>) -> Vec<Tensor> {
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|input| input.detach().copy().set_requires_grad(true))
        .collect();
    let results = operation(&leaves);
    let terms = results.iter().enumerate().map(|(number, result)| {
        let weights = random(&result.size(), 900 + number as u64).to_kind(result.kind());
        (result * weights).sum(Kind::Double)
    });
    terms.sum::<Tensor>().backward();
    let gradients = leaves.iter().map(Tensor::grad);
    results
        .iter()
        .map(Tensor::detach)
        .chain(gradients)
        .collect()
}

/// Compares in float32 and in bf16, with inputs that bf16 can hold.
fn compare(
    name: &str,
    inputs: &[Tensor],
    operation: impl Fn(&[Tensor]) -> Vec<Tensor>,
    plain: impl Fn(&[Tensor]) -> Vec<Tensor>,
) {
    for (kind, tolerance) in [(Kind::Float, 2e-6), (Kind::BFloat16, 1e-2)] {
        let held: Vec<Tensor> = inputs.iter().map(|input| input.to_kind(kind)).collect();
        let exact: Vec<Tensor> = held.iter().map(|x| x.to_kind(Kind::Double)).collect();
        let wanted = differentiate(&exact, &plain);
        for kernels in [false, true] {
            let _emulation = kernels.then(Emulation::begin);
            let found = differentiate(&held, &operation);
            assert_eq!(found.len(), wanted.len());
            for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let what = format!("{name}, {kind:?}, kernels {kernels}, tensor {place}");
                assert_eq!(found.size(), wanted.size(), "{what}");
                let off = distance(&found.to_kind(Kind::Double), wanted);
                assert!(off <= tolerance, "{what}: {off:e}");
            }
        }
    }
}

fn plain_norm(x: &Tensor, weight: &Tensor) -> Tensor {
    let mean = x.square().mean_dim(-1, true, x.kind());
    x * (mean + EPSILON).rsqrt() * weight
}

#[test]
fn rms_norm_is_the_formula() {
    for width in [7, 64, 576, 1028] {
        compare(
            "rms_norm",
            &[random(&[3, 5, width], 1), random(&[width], 2)],
            |x| vec![fused::rms_norm(&x[0], &x[1], EPSILON)],
            |x| vec![plain_norm(&x[0], &x[1])],
        );
    }
}

#[test]
fn a_matrix_with_a_bias_is_the_formula_for_few_rows_and_many() {
    for rows in [3, 70] {
        let matrix = random(&[64, 48], 3) * 0.1;
        compare(
            "linear",
            &[random(&[2, rows, 48], 1), matrix, random(&[64], 5)],
            |x| vec![fused::linear(&x[0], &x[1], Some(&x[2]))],
            |x| vec![x[0].linear(&x[1], Some(&x[2]))],
        );
    }
}

#[test]
fn matrices_of_a_normalized_input_are_the_formula() {
    let inputs = [
        random(&[2, 9, 48], 1),
        random(&[48], 2),
        random(&[64, 48], 3) * 0.1,
        random(&[16, 48], 4) * 0.1,
        random(&[16], 5),
    ];
    compare(
        "norm_linears",
        &inputs,
        |x| {
            let linears = [(&x[2], None), (&x[3], Some(&x[4]))];
            fused::norm_linears(&x[0], &x[1], EPSILON, linears).into()
        },
        |x| {
            let h = plain_norm(&x[0], &x[1]);
            vec![
                h.linear(&x[2], None::<Tensor>),
                h.linear(&x[3], Some(&x[4])),
            ]
        },
    );
}

#[test]
fn swiglu_is_the_formula_also_far_from_zero() {
    let far = Tensor::from_slice(&[-200f32, -88.5, -20.0, 0.0, 20.0, 88.5, 200.0, 1e4]);
    let gates = Tensor::cat(&[random(&[2, 3, 40], 1) * 3.0, far.repeat([2, 3, 5])], 2);
    let inputs = [gates, random(&[2, 3, 80], 2), random(&[24, 80], 3) * 0.1];
    compare(
        "swiglu_linear",
        &inputs,
        |x| vec![fused::swiglu_linear(&x[0], &x[1], &x[2])],
        |x| vec![(x[0].silu() * &x[1]).linear(&x[2], None::<Tensor>)],
    );
}

#[test]
fn rotation_is_the_formula() {
    let angles = random(&[2, 7, 8], 9) * 10.0;
    let angles = Tensor::cat(&[&angles, &angles], -1);
    let (cos, sin) = (angles.cos(), angles.sin());
    compare(
        "rotate",
        &[random(&[2, 7, 3 * 16], 1)],
        |x| vec![fused::rotate(&x[0], &cos, &sin)],
        |x| {
            let heads = x[0].unflatten(-1, [3, 16]);
            let halves = heads.chunk(2, -1);
            let turned = Tensor::cat(&[-&halves[1], halves[0].shallow_clone()], -1);
            let [cos, sin] = [&cos, &sin].map(|one| one.to_kind(Kind::Double).unsqueeze(2));
            vec![(heads * cos + turned * sin).flatten(-2, -1)]
        },
    );
}

/// Attention by a masked softmax.
fn plain_attention(x: &[Tensor], documents: &[[i64; 3]]) -> Tensor {
    let (rows, width) = (x[0].size()[0], x[0].size()[2]);
    let mask = Tensor::zeros([rows, width, width], (Kind::Bool, Device::Cpu));
    for &[row, start, length] in documents {
        let causal = Tensor::ones([length, length], (Kind::Bool, Device::Cpu)).tril(0);
        let square = mask.select(0, row).narrow(0, start, length);
        square.narrow(1, start, length).copy_(&causal);
    }
    // Padding attends to itself, so that the softmax is defined; it is removed afterwards.
    let inside = mask.any_dim(2, true).unsqueeze(1);
    let mask = mask.logical_or(&Tensor::eye(width, (Kind::Bool, Device::Cpu)));
    let group = x[0].size()[1] / x[1].size()[1];
    let [k, v] = [&x[1], &x[2]].map(|part| part.repeat_interleave_self_int(group, 1, None));
    let scores = x[0].matmul(&k.transpose(2, 3)) / (x[0].size()[3] as f64).sqrt();
    let hidden = mask.logical_not().unsqueeze(1);
    let scores = scores.masked_fill(&hidden, f64::NEG_INFINITY);
    scores.softmax(-1, Kind::Double).matmul(&v) * inside
}

#[test]
fn attention_within_documents_is_the_formula() {
    let cases: [(&[i64; 3], &[[i64; 3]]); 4] = [
        (&[2, 20, 1], &[[0, 0, 20], [1, 0, 20]]),
        (&[2, 20, 3], &[[0, 0, 20], [1, 0, 20]]),
        (&[2, 20, 3], &[[0, 0, 7], [0, 7, 13], [1, 2, 1], [1, 3, 9]]),
        (&[1, 700, 3], &[[0, 0, 600], [0, 600, 90]]),
    ];
    for (&[rows, width, group], documents) in cases {
        let layout = |heads: i64, seed| random(&[rows, width, heads, 16], seed).transpose(1, 2);
        let list = Tensor::from_slice(&documents.concat()).view([-1, 3]);
        compare(
            "attend",
            &[layout(2 * group, 1), layout(2, 2), layout(2, 3)],
            |x| vec![fused::attend(&x[0], &x[1], &x[2], &list)],
            |x| vec![plain_attention(x, documents)],
        );
    }
}

#[test]
fn embedding_gradients_accumulate() {
    let ids = Tensor::from_slice(&[3i64, 0, 3, 5, 3]).view([1, 5]);
    let embed = |x: &[Tensor]| vec![fused::embed(&x[0], &ids)];
    let plain = |x: &[Tensor]| vec![x[0].index_select(0, &ids.view([-1])).unsqueeze(0)];
    compare("embed", &[random(&[6, 8], 1)], embed, plain);
    let table = random(&[6, 8], 1).set_requires_grad(true);
    let run = || {
        fused::embed(&table, &ids)
            .square()
            .sum(Kind::Float)
            .backward()
    };
    run();
    let once = table.grad().copy();
    run();
    assert!(distance(&table.grad(), &(once * 2.0)) < 1e-7);
}

#[test]
fn linear_cross_entropy_is_the_formula_in_any_chunks() {
    let (rows, width, vocabulary) = (23i64, 16i64, 3000i64);
    let hidden = random(&[rows, width], 1) * 3.0;
    let head = random(&[vocabulary, width], 2);
    let tokens = Tensor::from_slice(&(0..rows).map(|i| i * 97 % vocabulary).collect::<Vec<_>>());
    let weights = random(&[rows], 3).abs();
    let exact = |x: &Tensor| x.to_kind(Kind::Double).set_requires_grad(true);
    let (h, w) = (exact(&hidden), exact(&head));
    let lost = -h.linear(&w, None::<Tensor>).log_softmax(-1, Kind::Double);
    let lost = lost.gather(1, &tokens.unsqueeze(1), false).squeeze_dim(1) * &weights;
    let lost = lost.sum(Kind::Double);
    (&lost * 0.25).backward();
    for (kernels, kind, tolerance) in [
        (false, Kind::Float, 2e-6),
        (false, Kind::BFloat16, 2e-2),
        (true, Kind::Float, 2e-6),
        (true, Kind::BFloat16, 2e-2),
    ] {
        let _emulation = kernels.then(Emulation::begin);
        for chunk in [1, 5, 23, 100] {
            let head = head.to_kind(kind).detach().set_requires_grad(true);
            let predicted = Targets {
                head: &head,
                tokens: &tokens,
                weights: &weights,
            };
            let inputs = hidden.to_kind(kind);
            let (loss, gradient) =
                fused::linear_cross_entropy(&inputs, predicted, chunk, Some(0.25));
            let off = (loss / lost.double_value(&[]) - 1.0).abs();
            assert!(off < tolerance, "{kernels} {kind:?} {chunk}: {off:e}");
            for (found, wanted) in [(gradient.unwrap(), h.grad()), (head.grad(), w.grad())] {
                let off = distance(&found.to_kind(Kind::Double), &wanted);
                assert!(off < tolerance, "{kernels} {kind:?} {chunk}: {off:e}");
            }
            let (again, none) = fused::linear_cross_entropy(&inputs, predicted, chunk, None);
            assert!(none.is_none());
            assert_eq!(again, loss);
        }
    }
}

#[test]
fn what_is_not_a_number_stays_so_and_strange_tokens_are_refused() {
    refuses_and_keeps_nan();
    let _emulation = Emulation::begin();
    refuses_and_keeps_nan();
}

fn refuses_and_keeps_nan() {
    let head = random(&[50, 8], 1);
    let weights = Tensor::from_slice(&[1f32, 1.0]);
    let loss = |hidden: &Tensor, tokens: &[i64]| {
        let tokens = Tensor::from_slice(tokens);
        let predicted = Targets {
            head: &head,
            tokens: &tokens,
            weights: &weights,
        };
        fused::linear_cross_entropy(hidden, predicted, 8, None).0
    };
    let hidden = random(&[2, 8], 2);
    assert!(loss(&hidden, &[0, 49]).is_finite());
    for strange in [-1, 50] {
        let tried = catch_unwind(AssertUnwindSafe(|| loss(&hidden, &[0, strange])));
        let panic = tried.unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("vocabulary of 50"), "{text}");
    }
    let _ = hidden.get(1).get(3).fill_(f64::NAN);
    assert!(loss(&hidden, &[0, 1]).is_nan());
    let broken = fused::swiglu_linear(&hidden, &hidden, &head).isnan().any();
    assert_eq!(broken.int64_value(&[]), 1);
}

#[test]
fn a_frozen_matrix_gets_no_gradient_and_a_second_part_adds_to_the_first() {
    let x = random(&[4, 8], 1);
    let (weight, frozen) = (random(&[8], 2), random(&[6, 8], 3));
    let trained = random(&[6, 8], 4).set_requires_grad(true);
    let run = || {
        let linears = [(&frozen, None), (&trained, None)];
        let [a, b] = fused::norm_linears(&x, &weight, EPSILON, linears);
        (a * b).sum(Kind::Float).backward();
    };
    run();
    let once = trained.grad().copy();
    run();
    assert!(!frozen.grad().defined());
    assert!(distance(&trained.grad(), &(once * 2.0)) < 1e-7);
}
