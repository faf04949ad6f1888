//! AdamW over the parts of parameters that this process owns: float32 arithmetic by libtorch's fused
//! kernel, whatever the kinds in which weights and moments are kept.

use tch::{Device, Kind, TchError, Tensor, no_grad};

use super::moments::{BLOCK, Codec, Moment};
use super::recipe::{MomentKind, Optimizer, Updates};
use super::shelf::Shelf;
use crate::torch::{AdamStep, fused_adamw};

/// Elements that are worked on together where they must be converted first, which takes some 64 bytes
/// for each. A multiple of [`BLOCK`]; a GPU needs many at once to be busy.
pub(super) fn chunk(device: Device) -> i64 {
    match device {
        Device::Cpu => 1 << 20,
        _ => 1 << 24,
    }
}

/// A part of a parameter: all of it in a run of one process.
#[derive(Debug)]
pub struct Piece {
    /// Name of the parameter, as in [`crate::model::Model::parameters`].
    pub name: String,
    /// Its first element, counted in the flat parameter; a multiple of 256.
    pub offset: i64,
    /// Whether weight decay is for it.
    pub matrix: bool,
    /// The weights, flat; float32 or bf16.
    pub weight: Tensor,
}

/// A flat tensor of a checkpoint: a range of what `name` is in the whole run.
#[derive(Debug)]
pub struct StatePart {
    /// `kind.parameter`.
    pub name: String,
    /// Its first element.
    pub start: i64,
    /// `[elements]`.
    pub tensor: Tensor,
}

/// Moments, master copies and counts of the pieces.
#[derive(Debug)]
pub struct AdamW {
    /// What is trained.
    pub pieces: Vec<Piece>,
    /// Float32 copies of bf16 weights, where they are asked for.
    masters: Vec<Option<Tensor>>,
    firsts: Vec<Moment>,
    seconds: Vec<Moment>,
    steps: Vec<Tensor>,
    shelf: Shelf,
    codec: Codec,
    options: Optimizer,
    seed: u64,
}

impl AdamW {
    /// Moments of zero for these pieces. `seed` is of stochastic rounding.
    pub fn new(pieces: Vec<Piece>, options: &Optimizer, seed: u64) -> Result<Self, TchError> {
        let device = pieces.first().map_or(Device::Cpu, |p| p.weight.device());
        let shelf = Shelf::new(options.offload.as_ref(), device);
        let eight = options.moments == MomentKind::EightBits;
        let zeros = || -> Result<Vec<Moment>, TchError> {
            let sizes = pieces.iter().map(|piece| piece.weight.size()[0]);
            sizes
                .map(|size| Moment::zeros(size, eight, &shelf))
                .collect()
        };
        let master = |piece: &Piece| {
            let needed = piece.weight.kind() != Kind::Float && options.updates == Updates::Master;
            let copy = |mut room: Tensor| {
                no_grad(|| room.copy_(&piece.weight));
                room
            };
            let room = || shelf.zeros(piece.weight.size()[0], Kind::Float);
            needed.then(|| room().map(copy)).transpose()
        };
        let counts = (Kind::Float, shelf.device());
        Ok(Self {
            masters: pieces.iter().map(master).collect::<Result<_, _>>()?,
            firsts: zeros()?,
            seconds: zeros()?,
            steps: pieces.iter().map(|_| Tensor::zeros([1], counts)).collect(),
            codec: Codec::new(shelf.device()),
            shelf,
            options: options.clone(),
            seed,
            pieces,
        })
    }

    /// Step number `number` (from 0) at this rate, with the gradients times `factor`. Pieces without
    /// a gradient stay as they are. Gradients may be changed.
    pub fn step(
        &mut self,
        number: u64,
        gradients: &[Option<Tensor>],
        factor: f64,
        rate: f64,
    ) -> Result<(), TchError> {
        for (place, gradient) in gradients.iter().enumerate() {
            if let Some(gradient) = gradient {
                no_grad(|| self.step_piece(place, number, gradient, factor, rate))?;
            }
        }
        Ok(())
    }

    fn step_piece(
        &mut self,
        place: usize,
        number: u64,
        gradient: &Tensor,
        factor: f64,
        rate: f64,
    ) -> Result<(), TchError> {
        let piece = &self.pieces[place];
        let _ = self.steps[place].shallow_clone().g_add_scalar_(1.0);
        let numbers = AdamStep {
            rate,
            betas: self.options.betas,
            decay: if piece.matrix {
                self.options.decay
            } else {
                0.0
            },
            epsilon: self.options.epsilon,
            factor,
        };
        let elements = piece.weight.size()[0];
        let home = self.shelf.device();
        let in_place = piece.weight.kind() == Kind::Float
            && piece.weight.device() == home
            && matches!(self.firsts[place], Moment::Whole(_));
        let chunk = match in_place {
            true => elements.max(1),
            false => chunk(home),
        };
        for start in (0..elements).step_by(chunk as usize) {
            let range = (start, chunk.min(elements - start));
            let gradient = cut(gradient, range).to_device(home).to_kind(Kind::Float);
            self.step_range(place, range, number, gradient, numbers)?;
        }
        let moments = [&self.firsts[place], &self.seconds[place]];
        let moments = moments.into_iter().flat_map(Moment::tensors);
        moments
            .chain(&self.masters[place])
            .for_each(|tensor| self.shelf.rest(tensor));
        Ok(())
    }

    fn step_range(
        &self,
        place: usize,
        range: (i64, i64),
        number: u64,
        gradient: Tensor,
        numbers: AdamStep,
    ) -> Result<(), TchError> {
        let piece = &self.pieces[place];
        let mut stored = cut(&piece.weight, range);
        let weight = match &self.masters[place] {
            Some(master) => cut(master, range),
            None => stored.to_device(self.shelf.device()).to_kind(Kind::Float),
        };
        let first = self.moment(&self.firsts[place], range, true);
        let second = self.moment(&self.seconds[place], range, false);
        fused_adamw(
            &[weight.shallow_clone()],
            &[gradient],
            &[first.shallow_clone()],
            &[second.shallow_clone()],
            &[self.steps[place].view([])],
            numbers,
        )?;
        self.keep(&self.firsts[place], range, &first, true);
        self.keep(&self.seconds[place], range, &second, false);
        if stored.kind() != Kind::Float || stored.device() != self.shelf.device() {
            let rounded = match self.options.updates {
                Updates::Stochastic if stored.kind() != Kind::Float => {
                    // Ranges of a parameter are drawn for apart, wherever they lie.
                    let place = (piece.offset + range.0) as u64;
                    let seed = mix(&[self.seed, number, hash(&piece.name), place]);
                    round_stochastically(&weight, seed)
                }
                _ => weight,
            };
            stored.copy_(&rounded);
        }
        Ok(())
    }

    /// Values of a moment in a range. In bytes lies the root of the second: its values then span as
    /// many decades as the first's, and neither vanishes without the other.
    fn moment(&self, moment: &Moment, range: (i64, i64), signed: bool) -> Tensor {
        match moment {
            Moment::Whole(values) => cut(values, range),
            Moment::Blocks { codes, scales } => {
                let scales = cut(scales, blocks(range));
                let values = self.codec.unpack(&cut(codes, range), &scales, signed);
                if signed { values } else { values.square() }
            }
        }
    }

    fn keep(&self, moment: &Moment, range: (i64, i64), values: &Tensor, signed: bool) {
        if let Moment::Blocks { codes, scales } = moment {
            let values = match signed {
                true => values.shallow_clone(),
                false => values.sqrt(),
            };
            let packed = self.codec.pack(&values, signed);
            cut(codes, range).copy_(&packed.0);
            cut(scales, blocks(range)).copy_(&packed.1);
        }
    }

    /// Everything that a resumed run needs: weights (the master copy where there is one), moments,
    /// counts. The tensors are the optimizer's own.
    pub fn state(&self) -> Vec<StatePart> {
        let mut all = vec![];
        for (place, piece) in self.pieces.iter().enumerate() {
            let mut push = |kind: &str, unit: i64, tensor: Tensor| {
                all.push(StatePart {
                    name: format!("{kind}.{}", piece.name),
                    start: piece.offset / unit,
                    tensor,
                });
            };
            let weight = self.masters[place].as_ref().unwrap_or(&piece.weight);
            push("param", 1, weight.shallow_clone());
            for (kind, moment) in [("first", &self.firsts), ("second", &self.seconds)] {
                for (suffix, unit, tensor) in moment[place].state() {
                    push(&format!("{kind}{suffix}"), unit, tensor);
                }
            }
            push("steps", i64::MAX, self.steps[place].shallow_clone());
        }
        all
    }

    /// Makes the weights what the master copies say, after those were read.
    pub fn restored(&mut self) {
        for (piece, master) in self.pieces.iter_mut().zip(&self.masters) {
            if let Some(master) = master {
                no_grad(|| piece.weight.copy_(master));
            }
        }
    }
}

fn cut(tensor: &Tensor, (start, length): (i64, i64)) -> Tensor {
    tensor.narrow(0, start, length)
}

fn blocks((start, length): (i64, i64)) -> (i64, i64) {
    (start / BLOCK, (length + BLOCK - 1) / BLOCK)
}

/// A seed from numbers: splitmix64's mixing, one after another.
pub(super) fn mix(numbers: &[u64]) -> i64 {
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

/// Float32 to bf16, up or down with the odds that make the mean right: random bits are added to those
/// that will be cut off. `values` must be finite.
pub(super) fn round_stochastically(values: &Tensor, seed: i64) -> Tensor {
    tch::manual_seed(seed);
    let noise = Tensor::randint(1 << 16, values.size(), (Kind::Int, values.device()));
    let bits = values.view_dtype(Kind::Int) + noise;
    let cut = bits.bitwise_and(!0xffff);
    cut.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::train::recipe::Offload;

    fn options(updates: Updates, moments: MomentKind) -> Optimizer {
        Optimizer {
            updates,
            moments,
            ..Optimizer::default()
        }
    }

    /// Normal numbers. libtorch's generator is the whole process's: other tests draw from it.
    fn normal(seed: u64) -> Tensor {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
        Tensor::from_slice(&(0..1000).map(|_| draw()).collect::<Vec<f32>>())
    }

    /// Two hundred steps towards a fixed point with noisy gradients; the weights in float32, and the state.
    fn descend(kind: Kind, options: &Optimizer) -> (Tensor, AdamW) {
        let weight = (normal(1) * 0.1).to_kind(kind);
        let goal = normal(2);
        let piece = Piece {
            name: "w".into(),
            offset: 0,
            matrix: true,
            weight: weight.shallow_clone(),
        };
        let mut adam = AdamW::new(vec![piece], options, 5).unwrap();
        for number in 0..200 {
            let noise = normal(1000 + number) * 0.5;
            let gradient = weight.to_kind(Kind::Float) - &goal + noise;
            adam.step(number, &[Some(gradient.to_kind(kind))], 1.0, 1e-4)
                .unwrap();
        }
        let weight = match &adam.masters[0] {
            Some(master) => master.shallow_clone(),
            None => weight,
        };
        (weight.to_kind(Kind::Float), adam)
    }

    fn distance(a: &Tensor, b: &Tensor) -> f64 {
        (a - b).norm().double_value(&[]) / b.norm().double_value(&[])
    }

    #[test]
    fn bf16_with_a_master_copy_and_8_bit_moments_track_float32() {
        let whole = options(Updates::Master, MomentKind::Float32);
        let (wanted, _) = descend(Kind::Float, &whole);
        // 200 steps of 1e-4 move every weight by up to 0.02; the mean weight is about 0.08.
        let (master, adam) = descend(Kind::BFloat16, &whole);
        // From weights that were rounded once, at the start.
        assert!(
            distance(&master, &wanted) < 4e-3,
            "{}",
            distance(&master, &wanted)
        );
        let stored = adam.pieces[0].weight.to_kind(Kind::Float);
        assert!(stored.equal(&master.to_kind(Kind::BFloat16).to_kind(Kind::Float)));
        let eight = options(Updates::Master, MomentKind::EightBits);
        let (eight, _) = descend(Kind::Float, &eight);
        assert!(
            distance(&eight, &wanted) < 4e-3,
            "{}",
            distance(&eight, &wanted)
        );
        assert!(!eight.equal(&wanted));
    }

    #[test]
    fn where_the_state_lies_changes_no_bit() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, moments) in [
            (Kind::Float, MomentKind::Float32),
            (Kind::BFloat16, MomentKind::EightBits),
        ] {
            let near = options(Updates::Master, moments);
            let (wanted, _) = descend(kind, &near);
            for place in [Offload::Memory, Offload::Disk(folder.path().into())] {
                let offload = Some(place);
                let (found, _) = descend(
                    kind,
                    &Optimizer {
                        offload,
                        ..near.clone()
                    },
                );
                assert!(found.equal(&wanted));
            }
        }
    }

    #[test]
    fn plain_bf16_stalls_where_stochastic_rounding_moves() {
        let start = normal(1) * 0.1;
        let moved = |updates| {
            let (weight, _) = descend(Kind::BFloat16, &options(updates, MomentKind::Float32));
            (weight - &start).abs().mean(Kind::Float).double_value(&[])
        };
        let (float, _) = descend(Kind::Float, &options(Updates::Plain, MomentKind::Float32));
        let wanted = (float - &start).abs().mean(Kind::Float).double_value(&[]);
        let (plain, stochastic) = (moved(Updates::Plain), moved(Updates::Stochastic));
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
            // Five standard deviations of a mean of draws with odds of 1 to 3.
            let bound = 5.0 * (0.25 * 0.75 / draws as f64).sqrt();
            assert!((share - 0.25).abs() < bound, "{value}: {share}");
        }
        let exact = Tensor::from_slice(&[1.0f32, -2.5, 0.0]);
        let rounded = round_stochastically(&exact, 3).to_kind(Kind::Float);
        assert!(rounded.equal(&exact));
    }
}
