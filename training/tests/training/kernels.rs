//! GPU kernels: compilation and AdamW. `fused.rs` tests the other operations.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use pybench_test_needs::python::package_file;
use pybench_training::torch::kernels::{self, AdamWArgs, Emulation, Rounding, StateParts};
use pybench_training::torch::{AdamStep, fused_adamw};
use tch::{Device, Kind, Tensor};

use crate::support::distance;

/// NVIDIA's compiler: the one that `PYBENCH_NVRTC` names, or that of the package index.
fn nvrtc() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PYBENCH_NVRTC") {
        return Some(named.into());
    }
    let file = |name| package_file("nvrtc", &format!("nvidia/cu13/lib/{name}"));
    let builtins = file("libnvrtc-builtins.so.13.0")?.into_os_string();
    let builtins = CString::new(builtins.into_vec()).unwrap();
    // It opens its other library by name, which succeeds once that is loaded.
    // SAFETY: a library of data, whose initialization does nothing else.
    let loaded = unsafe { libc::dlopen(builtins.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!loaded.is_null());
    file("libnvrtc.so.13")
}

#[test]
fn nvidias_compiler_takes_them() {
    let Some(compiler) = nvrtc() else { return };
    // A100, H100, B200.
    for capability in [80, 90, 100] {
        kernels::compile(&compiler, capability).unwrap();
    }
    let nonsense = kernels::compile(&compiler, 1).unwrap_err();
    assert!(nonsense.to_string().contains("sm_1"), "{nonsense}");
}

#[test]
fn a_missing_compiler_is_reported() {
    let error = kernels::compile(Path::new("/nowhere/libnvrtc.so"), 90);
    // Where a machine has NVRTC in its search path, that one is found.
    if let Err(error) = error {
        assert!(error.to_string().contains("libnvrtc"), "{error}");
    }
}

const STEP: AdamStep = AdamStep {
    learning_rate: 1e-2,
    betas: (0.9, 0.95),
    weight_decay: 0.1,
    eps: 1e-8,
    gradient_scale: 0.5,
};

fn numbers(seed: i64, scale: f64) -> Tensor {
    let places = Tensor::arange(1003, (Kind::Double, Device::Cpu)) + seed as f64 * 0.37;
    ((&places * 12.9898).sin() * 43758.5453).frac() * scale
}

/// Weight, first and second moment after three steps in float64, by the formula.
fn plainly() -> [Tensor; 3] {
    let (mut w, mut m, mut v) = (numbers(1, 1.0), numbers(2, 0.1), numbers(3, 0.01).abs());
    for step in 3..6 {
        let g = numbers(10 + step, 1.0) * STEP.gradient_scale;
        w = &w * (1.0 - STEP.learning_rate * STEP.weight_decay);
        m = &m * STEP.betas.0 + &g * (1.0 - STEP.betas.0);
        v = &v * STEP.betas.1 + g.square() * (1.0 - STEP.betas.1);
        let corrected = |x: &Tensor, beta: f64| x / (1.0 - beta.powi(step as i32));
        let root = corrected(&v, STEP.betas.1).sqrt() + STEP.eps;
        w -= corrected(&m, STEP.betas.0) / root * STEP.learning_rate;
    }
    [w, m, v]
}

#[test]
fn adamw_is_the_formula_and_libtorchs() {
    let _emulation = Emulation::begin();
    let wanted = plainly();
    let start = [numbers(1, 1.0), numbers(2, 0.1), numbers(3, 0.01).abs()];
    let [ours, theirs] = [(); 2].map(|()| start.each_ref().map(|x| x.to_kind(Kind::Float)));
    for step in 3..6 {
        let count = Tensor::from(step as f32);
        let gradient = numbers(10 + step, 1.0).to_kind(Kind::Float);
        let piece = AdamWArgs {
            weight: &ours[0],
            gradient: &gradient,
            master: None,
            exp_avg: StateParts::Float32(&ours[1]),
            exp_avg_sq: StateParts::Float32(&ours[2]),
            step_count: &count,
        };
        kernels::adamw(piece, STEP, Rounding::Nearest).unwrap();
        let [w, m, v] = theirs.each_ref().map(Tensor::shallow_clone);
        fused_adamw(&[w], &[gradient], &[m], &[v], &[count], STEP).unwrap();
    }
    for ((ours, theirs), wanted) in ours.iter().zip(&theirs).zip(&wanted) {
        assert!(distance(&ours.to_kind(Kind::Double), wanted) < 1e-6);
        assert!(distance(ours, theirs) < 1e-6);
    }
}

#[test]
fn stochastic_rounding_is_unbiased_and_independent_of_the_sharding() {
    let _emulation = Emulation::begin();
    let draws = 40_000i64;
    // A quarter of the way from 1 to the next value that bf16 has; steps that change nothing else.
    let master = Tensor::full([draws], 1.0 + 2f64.powi(-9), (Kind::Float, Device::Cpu));
    let zeros = || Tensor::zeros([draws], (Kind::Float, Device::Cpu));
    let round = |from: i64, count: i64| {
        let weight = Tensor::zeros([count], (Kind::BFloat16, Device::Cpu));
        let (gradient, first, second) = (zeros(), zeros(), zeros());
        let cut = |tensor: &Tensor| tensor.narrow(0, from, count);
        let piece = AdamWArgs {
            weight: &weight,
            gradient: &cut(&gradient),
            master: Some(&cut(&master)),
            exp_avg: StateParts::Float32(&cut(&first)),
            exp_avg_sq: StateParts::Float32(&cut(&second)),
            step_count: &Tensor::from(1f32),
        };
        let still = AdamStep {
            learning_rate: 0.0,
            ..STEP
        };
        let rounding = Rounding::Stochastic {
            seed: 17,
            offset: from,
        };
        kernels::adamw(piece, still, rounding).unwrap();
        weight.to_kind(Kind::Float)
    };
    let all = round(0, draws);
    let share = all.gt(1.0).to_kind(Kind::Double).mean(Kind::Double);
    // Five standard deviations of a mean of draws with probability 0.25.
    let bound = 5.0 * (0.25 * 0.75 / draws as f64).sqrt();
    let share = share.double_value(&[]);
    assert!((share - 0.25).abs() < bound, "{share}");
    assert!(round(512, 1000).equal(&all.narrow(0, 512, 1000)));
}
