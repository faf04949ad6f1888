//! AdamW over the parameters, or shards of them, that this process owns. Arithmetic is float32 for all dtypes of
//! weights and optimizer state.

use tch::{Device, Kind, TchError, Tensor, no_grad};

use super::optimizer_state::{BLOCK, StateQuantizer, StateTensor};
use super::recipe::{Bf16Update, OptimizerConfig, StateDtype};
use super::state_offload::StateOffload;
use crate::torch::kernels::{self, Rounding};
use crate::torch::{AdamStep, PinnedMemory, fused_adamw};

/// Elements per chunk where dtypes must be converted, which needs about 64 bytes per element. A multiple of
/// [`BLOCK`].
pub(super) fn chunk_elements(device: Device) -> i64 {
    match device {
        Device::Cpu => 1 << 20,
        _ => 1 << 24,
    }
}

/// The part of a parameter that this process updates; with a single process the whole parameter.
#[derive(Debug)]
pub struct ParamSlice {
    /// Name of the parameter, as in [`crate::model::Model::parameters`].
    pub name: String,
    /// Index of the first element in the flat parameter; a multiple of 256.
    pub offset: i64,
    /// Weight decay applies to matrices only.
    pub is_matrix: bool,
    /// Flat; float32 or bf16.
    pub weight: Tensor,
}

/// A flat tensor of a checkpoint: a range of the state `name` of the whole run.
#[derive(Debug)]
pub struct StateSlice {
    /// `kind.parameter`.
    pub name: String,
    /// Index of the first element.
    pub start: i64,
    /// `[elements]`.
    pub tensor: Tensor,
    /// Whether it is stored where `optimizer.offload` says.
    offloaded: bool,
}

#[derive(Debug)]
pub struct AdamW {
    /// The state in main memory, if a GPU updates it. Dropped before the tensors.
    #[expect(dead_code, reason = "held until it is dropped")]
    pinned: Vec<PinnedMemory>,
    pub slices: Vec<ParamSlice>,
    /// Float32 copies of bf16 weights, for [`Bf16Update::MasterWeights`].
    master_weights: Vec<Option<Tensor>>,
    exp_avgs: Vec<StateTensor>,
    exp_avg_sqs: Vec<StateTensor>,
    steps: Vec<Tensor>,
    offload: StateOffload,
    quantizer: StateQuantizer,
    options: OptimizerConfig,
    seed: u64,
}

impl AdamW {
    /// Starts with an optimizer state of zero. `seed` is used for stochastic rounding.
    pub fn new(
        slices: Vec<ParamSlice>,
        options: &OptimizerConfig,
        seed: u64,
    ) -> Result<Self, TchError> {
        let device = slices.first().map_or(Device::Cpu, |p| p.weight.device());
        let offload = StateOffload::new(options.offload.as_ref(), device);
        let int8 = options.state_dtype == StateDtype::Int8;
        let zeros = || -> Result<Vec<StateTensor>, TchError> {
            let sizes = slices.iter().map(|slice| slice.weight.size()[0]);
            sizes
                .map(|size| StateTensor::zeros(size, int8, &offload))
                .collect()
        };
        let master = |slice: &ParamSlice| {
            let needed = slice.weight.kind() != Kind::Float
                && options.bf16_update == Bf16Update::MasterWeights;
            let copy = |mut room: Tensor| {
                no_grad(|| room.copy_(&slice.weight));
                offload.page_out(&room);
                room
            };
            let room = || offload.zeros(slice.weight.size()[0], Kind::Float);
            needed.then(|| room().map(copy)).transpose()
        };
        let counts = (Kind::Float, offload.device());
        let master_weights: Vec<_> = slices.iter().map(master).collect::<Result<_, _>>()?;
        let (exp_avgs, exp_avg_sqs) = (zeros()?, zeros()?);
        let in_main_memory =
            device.is_cuda() && matches!(offload, StateOffload::Memory(Device::Cpu));
        let states = exp_avgs.iter().chain(&exp_avg_sqs);
        let tensors = states
            .flat_map(StateTensor::tensors)
            .chain(master_weights.iter().flatten());
        Ok(Self {
            pinned: match in_main_memory {
                true => tensors.filter_map(PinnedMemory::lock).collect(),
                false => vec![],
            },
            master_weights,
            exp_avgs,
            exp_avg_sqs,
            steps: slices.iter().map(|_| Tensor::zeros([1], counts)).collect(),
            quantizer: StateQuantizer::new(match slices.first() {
                Some(slice) if kernels::apply_to(&slice.weight) => slice.weight.device(),
                _ => offload.device(),
            }),
            offload,
            options: options.clone(),
            seed,
            slices,
        })
    }

    /// Performs step `number` (from 0) with the gradients times `gradient_scale`. Slices without a gradient do not
    /// change. Gradients may be modified.
    pub fn step(
        &mut self,
        number: u64,
        gradients: &[Option<Tensor>],
        gradient_scale: f64,
        learning_rate: f64,
    ) -> Result<(), TchError> {
        for (index, gradient) in gradients.iter().enumerate() {
            if let Some(gradient) = gradient {
                no_grad(|| {
                    self.step_slice(index, number, gradient, gradient_scale, learning_rate)
                })?;
            }
        }
        Ok(())
    }

    fn step_slice(
        &mut self,
        index: usize,
        number: u64,
        gradient: &Tensor,
        gradient_scale: f64,
        learning_rate: f64,
    ) -> Result<(), TchError> {
        let _ = self.steps[index].shallow_clone().g_add_scalar_(1.0);
        let numbers = self.numbers(index, gradient_scale, learning_rate);
        match self.has_kernel(index) {
            true => self.step_by_kernel(index, number, gradient, numbers)?,
            false => self.step_by_operations(index, number, gradient, numbers)?,
        }
        let states = [&self.exp_avgs[index], &self.exp_avg_sqs[index]];
        let tensors = states.into_iter().flat_map(StateTensor::tensors);
        tensors
            .chain(&self.master_weights[index])
            .for_each(|tensor| self.offload.page_out(tensor));
        Ok(())
    }

    fn numbers(&self, index: usize, gradient_scale: f64, learning_rate: f64) -> AdamStep {
        AdamStep {
            learning_rate,
            betas: self.options.betas,
            weight_decay: match self.slices[index].is_matrix {
                true => self.options.weight_decay,
                false => 0.0,
            },
            eps: self.options.eps,
            gradient_scale,
        }
    }

    /// Whether everything is float32, so that libtorch's fused operation updates the weights in place.
    fn is_float32(&self, index: usize) -> bool {
        self.slices[index].weight.kind() == Kind::Float
            && matches!(self.exp_avgs[index], StateTensor::Float32(_))
    }

    /// Whether one pass over memory updates a slice. On a GPU that is so wherever the state is stored.
    fn has_kernel(&self, index: usize) -> bool {
        let weight = &self.slices[index].weight;
        let on_cpu = weight.device() == Device::Cpu && !self.is_float32(index);
        on_cpu || kernels::apply_to(weight)
    }

    /// Updates a slice with libtorch's operations, in chunks where dtypes or devices differ.
    fn step_by_operations(
        &self,
        index: usize,
        number: u64,
        gradient: &Tensor,
        numbers: AdamStep,
    ) -> Result<(), TchError> {
        let slice = &self.slices[index];
        let elements = slice.weight.size()[0];
        let device = self.offload.device();
        let chunk = match self.is_float32(index) && slice.weight.device() == device {
            true => elements.max(1),
            false => chunk_elements(device),
        };
        for start in (0..elements).step_by(chunk as usize) {
            let range = (start, chunk.min(elements - start));
            let gradient = narrow(gradient, range)
                .to_device(device)
                .to_kind(Kind::Float);
            self.step_range(index, range, number, gradient, numbers)?;
        }
        Ok(())
    }

    /// Updates a slice in one pass over memory; in chunks if its state must first be copied to the GPU.
    fn step_by_kernel(
        &self,
        index: usize,
        number: u64,
        gradient: &Tensor,
        numbers: AdamStep,
    ) -> Result<(), TchError> {
        let slice = &self.slices[index];
        let elements = slice.weight.size()[0];
        let device = slice.weight.device();
        let chunk = match device == self.offload.device() {
            true => elements.max(1),
            false => chunk_elements(device),
        };
        let step_count = self.steps[index].to_device(device);
        for start in (0..elements).step_by(chunk as usize) {
            let range = (start, chunk.min(elements - start));
            let rounding = match self.options.bf16_update {
                Bf16Update::StochasticRounding => Rounding::Stochastic {
                    seed: mix_seed(&[self.seed, number, hash(&slice.name)]) & i64::MAX,
                    offset: slice.offset + start,
                },
                _ => Rounding::Nearest,
            };
            let master = self.master_weights[index].as_ref();
            let master = master.map(|master| narrow(master, range).to_device(device));
            let states = [&self.exp_avgs[index], &self.exp_avg_sqs[index]];
            let [exp_avg, exp_avg_sq] = states.map(|state| state.range(range).to_device(device));
            let parts = kernels::AdamWArgs {
                weight: &narrow(&slice.weight, range),
                gradient: &narrow(gradient, range).contiguous(),
                master: master.as_ref(),
                exp_avg: exp_avg.parts(&self.quantizer, true),
                exp_avg_sq: exp_avg_sq.parts(&self.quantizer, false),
                step_count: &step_count,
            };
            kernels::adamw(parts, numbers, rounding)?;
            if device != self.offload.device() {
                for (state, updated) in states.into_iter().zip([&exp_avg, &exp_avg_sq]) {
                    state.range(range).copy_(updated);
                }
                if let (Some(all), Some(updated)) = (&self.master_weights[index], &master) {
                    narrow(all, range).copy_(updated);
                }
            }
        }
        Ok(())
    }

    fn step_range(
        &self,
        index: usize,
        range: (i64, i64),
        number: u64,
        gradient: Tensor,
        numbers: AdamStep,
    ) -> Result<(), TchError> {
        let slice = &self.slices[index];
        let mut stored = narrow(&slice.weight, range);
        let weight = match &self.master_weights[index] {
            Some(master) => narrow(master, range),
            None => stored.to_device(self.offload.device()).to_kind(Kind::Float),
        };
        let exp_avg = self.load_state(&self.exp_avgs[index], range, true);
        let exp_avg_sq = self.load_state(&self.exp_avg_sqs[index], range, false);
        fused_adamw(
            &[weight.shallow_clone()],
            &[gradient],
            &[exp_avg.shallow_clone()],
            &[exp_avg_sq.shallow_clone()],
            &[self.steps[index].view([])],
            numbers,
        )?;
        self.store_state(&self.exp_avgs[index], range, &exp_avg, true);
        self.store_state(&self.exp_avg_sqs[index], range, &exp_avg_sq, false);
        if stored.kind() != Kind::Float || stored.device() != self.offload.device() {
            let rounded = match self.options.bf16_update {
                Bf16Update::StochasticRounding if stored.kind() != Kind::Float => {
                    // Each range of a parameter has its own seed, independent of the sharding.
                    let offset = (slice.offset + range.0) as u64;
                    let seed = mix_seed(&[self.seed, number, hash(&slice.name), offset]);
                    round_stochastically(&weight, seed)
                }
                _ => weight,
            };
            stored.copy_(&rounded);
        }
        Ok(())
    }

    /// The float32 values of a range. In 8 bits `exp_avg_sq` is stored as its square root, which spans as many
    /// decades as `exp_avg`.
    fn load_state(&self, state: &StateTensor, range: (i64, i64), signed: bool) -> Tensor {
        match state {
            StateTensor::Float32(values) => narrow(values, range),
            StateTensor::Int8 { codes, scales } => {
                let scales = narrow(scales, blocks(range));
                let values = self
                    .quantizer
                    .dequantize(&narrow(codes, range), &scales, signed);
                if signed { values } else { values.square() }
            }
        }
    }

    fn store_state(&self, state: &StateTensor, range: (i64, i64), values: &Tensor, signed: bool) {
        if let StateTensor::Int8 { codes, scales } = state {
            let values = match signed {
                true => values.shallow_clone(),
                false => values.sqrt(),
            };
            let packed = self.quantizer.quantize(&values, signed);
            narrow(codes, range).copy_(&packed.0);
            narrow(scales, blocks(range)).copy_(&packed.1);
        }
    }

    /// The state for a checkpoint: weights (master weights if they exist), optimizer state and step counts. The
    /// tensors share storage with the optimizer.
    pub fn state(&self) -> Vec<StateSlice> {
        let mut all = vec![];
        for (index, slice) in self.slices.iter().enumerate() {
            let mut push = |kind: &str, unit: i64, tensor: Tensor, offloaded: bool| {
                all.push(StateSlice {
                    name: format!("{kind}.{}", slice.name),
                    start: slice.offset / unit,
                    tensor,
                    offloaded,
                });
            };
            let master = self.master_weights[index].as_ref();
            let weight = master.unwrap_or(&slice.weight).shallow_clone();
            push("param", 1, weight, master.is_some());
            let states = [
                ("exp_avg", &self.exp_avgs),
                ("exp_avg_sq", &self.exp_avg_sqs),
            ];
            for (kind, states) in states {
                for (suffix, unit, tensor) in states[index].state() {
                    push(&format!("{kind}{suffix}"), unit, tensor, true);
                }
            }
            push("steps", i64::MAX, self.steps[index].shallow_clone(), false);
        }
        all
    }

    /// Removes a part of the state that is on disk from the memory of this process until it is used again.
    pub(super) fn page_out(&self, part: &StateSlice) {
        if part.offloaded {
            self.offload.page_out(&part.tensor);
        }
    }

    /// Copies master weights to the weights, after a checkpoint was read.
    pub fn sync_weights(&mut self) {
        for (slice, master) in self.slices.iter_mut().zip(&self.master_weights) {
            if let Some(master) = master {
                no_grad(|| slice.weight.copy_(master));
                self.offload.page_out(master);
            }
        }
    }
}

fn narrow(tensor: &Tensor, (start, length): (i64, i64)) -> Tensor {
    tensor.narrow(0, start, length)
}

fn blocks((start, length): (i64, i64)) -> (i64, i64) {
    (start / BLOCK, (length + BLOCK - 1) / BLOCK)
}

/// Derives a seed from numbers, with the mixing function of splitmix64.
pub(super) fn mix_seed(numbers: &[u64]) -> i64 {
    let mixed = numbers
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15u64, |state, number| {
            let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
    mixed as i64
}

fn hash(name: &str) -> u64 {
    let digest = blake3::hash(name.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// Rounds float32 to bf16 at random, so that the expected value is exact: random bits are added to those that
/// will be truncated. `values` must be finite.
pub(super) fn round_stochastically(values: &Tensor, seed: i64) -> Tensor {
    let _seeded = crate::random::seed(seed);
    let noise = Tensor::randint(1 << 16, values.size(), (Kind::Int, values.device()));
    let bits = values.view_dtype(Kind::Int) + noise;
    let truncated = bits.bitwise_and(!0xffff);
    truncated.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::train::recipe::Offload;

    fn options(bf16_update: Bf16Update, state_dtype: StateDtype) -> OptimizerConfig {
        OptimizerConfig {
            bf16_update,
            state_dtype,
            ..OptimizerConfig::default()
        }
    }

    /// Normally distributed numbers. The generator of libtorch is global, and other tests use it.
    fn normal(seed: u64) -> Tensor {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
        Tensor::from_slice(&(0..1000).map(|_| draw()).collect::<Vec<f32>>())
    }

    /// 200 steps towards a fixed point with noisy gradients. Returns the weights in float32 and the optimizer.
    fn descend(kind: Kind, options: &OptimizerConfig) -> (Tensor, AdamW) {
        descend_by(kind, options, |adam, number, gradient| {
            adam.step(number, &[Some(gradient)], 1.0, 1e-4)
        })
    }

    fn descend_by_operations(kind: Kind, options: &OptimizerConfig) -> (Tensor, AdamW) {
        descend_by(kind, options, |adam, number, gradient| {
            let _ = adam.steps[0].shallow_clone().g_add_scalar_(1.0);
            let numbers = adam.numbers(0, 1.0, 1e-4);
            no_grad(|| adam.step_by_operations(0, number, &gradient, numbers))
        })
    }

    fn descend_by(
        kind: Kind,
        options: &OptimizerConfig,
        step: impl Fn(&mut AdamW, u64, Tensor) -> Result<(), TchError>,
    ) -> (Tensor, AdamW) {
        let weight = (normal(1) * 0.1).to_kind(kind);
        let goal = normal(2);
        let slice = ParamSlice {
            name: "w".into(),
            offset: 0,
            is_matrix: true,
            weight: weight.shallow_clone(),
        };
        let mut adam = AdamW::new(vec![slice], options, 5).unwrap();
        for number in 0..200 {
            let noise = normal(1000 + number) * 0.5;
            let gradient = weight.to_kind(Kind::Float) - &goal + noise;
            step(&mut adam, number, gradient.to_kind(kind)).unwrap();
        }
        let weight = match &adam.master_weights[0] {
            Some(master) => master.shallow_clone(),
            None => weight,
        };
        (weight.to_kind(Kind::Float), adam)
    }

    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).norm().double_value(&[]) / b.norm().double_value(&[])
    }

    #[test]
    fn master_weights_and_8_bit_state_track_float32() {
        let whole = options(Bf16Update::MasterWeights, StateDtype::Float32);
        let (wanted, _) = descend(Kind::Float, &whole);
        // 200 steps of 1e-4 move every weight by up to 0.02; the mean weight is about 0.08.
        let (master, adam) = descend(Kind::BFloat16, &whole);
        // The initial weights are rounded once.
        assert!(
            distance(&master, &wanted) < 4e-3,
            "{}",
            distance(&master, &wanted)
        );
        let stored = adam.slices[0].weight.to_kind(Kind::Float);
        assert!(stored.equal(&master.to_kind(Kind::BFloat16).to_kind(Kind::Float)));
        let eight = options(Bf16Update::MasterWeights, StateDtype::Int8);
        let (eight, _) = descend(Kind::Float, &eight);
        assert!(
            distance(&eight, &wanted) < 4e-3,
            "{}",
            distance(&eight, &wanted)
        );
        assert!(!eight.equal(&wanted));
    }

    #[test]
    fn offloading_changes_no_bit() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, state_dtype) in [
            (Kind::Float, StateDtype::Float32),
            (Kind::BFloat16, StateDtype::Int8),
        ] {
            let near = options(Bf16Update::MasterWeights, state_dtype);
            let (wanted, _) = descend(kind, &near);
            for index in [Offload::Cpu, Offload::Disk(folder.path().into())] {
                let offload = Some(index);
                let (found, _) = descend(
                    kind,
                    &OptimizerConfig {
                        offload,
                        ..near.clone()
                    },
                );
                assert!(found.equal(&wanted));
            }
        }
    }

    #[test]
    fn kernels_take_the_steps_of_operations() {
        for (kind, bf16_update, state_dtype) in [
            (Kind::Float, Bf16Update::RoundToNearest, StateDtype::Float32),
            (
                Kind::BFloat16,
                Bf16Update::MasterWeights,
                StateDtype::Float32,
            ),
            (
                Kind::BFloat16,
                Bf16Update::RoundToNearest,
                StateDtype::Float32,
            ),
            (Kind::Float, Bf16Update::RoundToNearest, StateDtype::Int8),
            (Kind::BFloat16, Bf16Update::MasterWeights, StateDtype::Int8),
        ] {
            let options = options(bf16_update, state_dtype);
            let (wanted, _) = descend_by_operations(kind, &options);
            let (on_cpu, _) = descend(kind, &options);
            let _emulation = kernels::Emulation::begin();
            let (emulated, _) = descend(kind, &options);
            // A value at the midpoint between two levels may be rounded either way.
            let bound = match state_dtype {
                StateDtype::Float32 => 1e-6,
                StateDtype::Int8 => 1e-3,
            };
            for found in [on_cpu, emulated] {
                let off = distance(&found, &wanted);
                assert!(
                    off < bound,
                    "{kind:?} {bf16_update:?} {state_dtype:?}: {off:e}"
                );
            }
        }
    }

    /// Seeds and positions decide how both kernels round.
    #[test]
    fn a_cpu_rounds_as_a_gpu_does() {
        let options = options(Bf16Update::StochasticRounding, StateDtype::Float32);
        let (on_cpu, _) = descend(Kind::BFloat16, &options);
        let _emulation = kernels::Emulation::begin();
        let (emulated, _) = descend(Kind::BFloat16, &options);
        let differ = on_cpu
            .ne_tensor(&emulated)
            .sum(Kind::Int64)
            .int64_value(&[]);
        // A last bit of the float32 value may decide.
        assert!(differ < 10, "{differ} of 1000 weights");
    }

    #[test]
    fn plain_bf16_stalls_where_stochastic_rounding_moves() {
        stalls_or_moves();
        let _emulation = kernels::Emulation::begin();
        stalls_or_moves();
    }

    fn stalls_or_moves() {
        let start = normal(1) * 0.1;
        let moved = |updates| {
            let (weight, _) = descend(Kind::BFloat16, &options(updates, StateDtype::Float32));
            (weight - &start).abs().mean(Kind::Float).double_value(&[])
        };
        let (float, _) = descend(
            Kind::Float,
            &options(Bf16Update::RoundToNearest, StateDtype::Float32),
        );
        let wanted = (float - &start).abs().mean(Kind::Float).double_value(&[]);
        let (plain, stochastic) = (
            moved(Bf16Update::RoundToNearest),
            moved(Bf16Update::StochasticRounding),
        );
        assert!(plain < 0.8 * wanted, "{plain} of {wanted}");
        assert!(
            (stochastic / wanted - 1.0).abs() < 0.1,
            "{stochastic} of {wanted}"
        );
    }

    #[test]
    fn stochastic_rounding_is_unbiased() {
        // Between two bf16 values, a quarter of the way up; both signs, several magnitudes.
        for (value, step) in [
            (1.0f64, 2f64.powi(-7)),
            (-3.0, 2f64.powi(-6)),
            (1e-3, 2f64.powi(-17)),
        ] {
            let low = Tensor::from_slice(&[value as f32]).to_kind(Kind::BFloat16);
            let between = low.double_value(&[0]) + step * value.signum() * 0.25;
            let draws = 100_000;
            let all = Tensor::full([draws], between, (Kind::Float, Device::Cpu));
            let rounded = round_stochastically(&all, 17);
            let up = rounded.to_kind(Kind::Double) - low.double_value(&[0]);
            let share = (up / (step * value.signum()))
                .mean(Kind::Double)
                .double_value(&[]);
            // Five standard deviations of the mean of draws with probability 0.25.
            let bound = 5.0 * (0.25 * 0.75 / draws as f64).sqrt();
            assert!((share - 0.25).abs() < bound, "{value}: {share}");
        }
        let exact = Tensor::from_slice(&[1.0f32, -2.5, 0.0]);
        let rounded = round_stochastically(&exact, 3).to_kind(Kind::Float);
        assert!(rounded.equal(&exact));
    }
}
