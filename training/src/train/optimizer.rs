//! AdamW over all trained parameters, by libtorch's fused kernel.

use tch::{Kind, TchError, Tensor, no_grad};

use super::recipe::Optimizer;
use crate::torch::{AdamStep, fused_adamw};

/// The trained parameters and their moments.
#[derive(Debug)]
pub struct AdamW {
    /// Names, as in [`crate::model::Model::parameters`].
    pub names: Vec<String>,
    params: Vec<Tensor>,
    firsts: Vec<Tensor>,
    seconds: Vec<Tensor>,
    steps: Vec<Tensor>,
}

impl AdamW {
    /// Moments of zero for these parameters.
    pub fn new(parameters: Vec<(String, Tensor)>) -> Self {
        let (names, params): (Vec<_>, Vec<_>) = parameters.into_iter().unzip();
        let zeros = |params: &[Tensor]| params.iter().map(|p| p.detach().zeros_like()).collect();
        let step = |p: &Tensor| Tensor::zeros([], (Kind::Float, p.device()));
        Self {
            firsts: zeros(&params),
            seconds: zeros(&params),
            steps: params.iter().map(step).collect(),
            names,
            params,
        }
    }

    /// Norm of the whole gradient.
    pub fn gradient_norm(&self) -> f64 {
        let norms: Vec<Tensor> = self.gradients().map(|g| g.norm()).collect();
        match norms.is_empty() {
            true => 0.0,
            false => Tensor::stack(&norms, 0).norm().double_value(&[]),
        }
    }

    fn gradients(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.params.iter().map(Tensor::grad).filter(Tensor::defined)
    }

    /// Multiplies the gradient.
    pub fn scale_gradient(&self, factor: f64) {
        no_grad(|| {
            self.gradients()
                .for_each(|mut g| drop(g.g_mul_scalar_(factor)))
        });
    }

    /// Forgets the gradient.
    pub fn zero_gradient(&mut self) {
        self.params.iter_mut().for_each(Tensor::zero_grad);
    }

    /// One step at this rate, over the parameters that have a gradient. Decay is for matrices.
    pub fn step(&mut self, rate: f64, options: &Optimizer) -> Result<(), TchError> {
        for matrices in [true, false] {
            let chosen: Vec<usize> = (0..self.params.len())
                .filter(|&i| (self.params[i].dim() > 1) == matrices)
                .filter(|&i| self.params[i].grad().defined())
                .collect();
            if chosen.is_empty() {
                continue;
            }
            let pick = |all: &[Tensor]| -> Vec<Tensor> {
                chosen.iter().map(|&i| all[i].shallow_clone()).collect()
            };
            let steps = pick(&self.steps);
            no_grad(|| {
                steps
                    .iter()
                    .for_each(|s| drop(s.shallow_clone().g_add_scalar_(1.0)))
            });
            let gradients = pick(&self.params)
                .iter()
                .map(Tensor::grad)
                .collect::<Vec<_>>();
            let numbers = AdamStep {
                rate,
                betas: options.betas,
                decay: if matrices { options.decay } else { 0.0 },
                epsilon: options.epsilon,
            };
            let (firsts, seconds) = (pick(&self.firsts), pick(&self.seconds));
            fused_adamw(
                &pick(&self.params),
                &gradients,
                &firsts,
                &seconds,
                &steps,
                numbers,
            )?;
        }
        Ok(())
    }

    /// Everything that a resumed run needs, by name: parameters, moments, counts.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let kinds = [
            ("param", &self.params),
            ("first", &self.firsts),
            ("second", &self.seconds),
            ("steps", &self.steps),
        ];
        let all = kinds.into_iter().flat_map(|(kind, tensors)| {
            let named = self.names.iter().zip(tensors);
            named.map(move |(name, tensor)| (format!("{kind}.{name}"), tensor.shallow_clone()))
        });
        all.collect()
    }
}
