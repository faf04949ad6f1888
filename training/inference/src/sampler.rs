//! Sampling of tokens.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::rows::{argmax, exp_weights};

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy decoding.
    pub temperature: f64,
    /// Share of the probability that the most likely tokens together have at least; the others are not drawn.
    pub top_p: f64,
    /// Equal seeds give equal replies.
    pub seed: u64,
}

/// Draws the tokens of one reply.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
    /// Of all tokens, relative to the most likely one.
    weights: Vec<f32>,
}

impl Sampler {
    /// A sampler at the beginning of a reply.
    pub fn new(sampling: Sampling) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
            sampling,
            weights: vec![],
        }
    }

    /// Samples a token. `None` if a logit is not finite, or if there is none.
    pub fn pick(&mut self, logits: &[f32]) -> Option<u32> {
        let best = argmax(logits)?;
        if self.sampling.temperature <= 0.0 {
            return Some(best as u32);
        }
        let inverse = (1.0 / self.sampling.temperature) as f32;
        let mut total = exp_weights(logits, logits[best], inverse, &mut self.weights);
        if self.sampling.top_p >= 1.0 {
            return self.draw(total, |weights| (0..).zip(weights.iter().copied()));
        }
        // All tokens below this weight together have less than 1 - top_p, so they need not be sorted.
        let min_weight = (total * (1.0 - self.sampling.top_p) / logits.len() as f64) as f32;
        let all = (0u32..).zip(self.weights.iter().copied());
        let mut kept: Vec<_> = all.filter(|&(_, weight)| weight >= min_weight).collect();
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        total = keep_nucleus(&mut kept, total * self.sampling.top_p);
        self.draw(total, |_| kept.iter().copied())
    }

    /// Draws one of the tokens that `tokens` makes of all weights, whose sum is `total`.
    fn draw<'a, I: Iterator<Item = (u32, f32)>>(
        &'a mut self,
        total: f64,
        tokens: impl FnOnce(&'a [f32]) -> I,
    ) -> Option<u32> {
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * total;
        let mut last = None;
        for (id, weight) in tokens(&self.weights) {
            left -= f64::from(weight);
            last = Some(id);
            if left < 0.0 {
                break;
            }
        }
        // Rounding errors may leave a remainder: then it is the last token.
        last
    }
}

/// Keeps the first tokens, at least one, that together reach `goal`. Returns their weight.
fn keep_nucleus(kept: &mut Vec<(u32, f32)>, goal: f64) -> f64 {
    let mut sum = 0.0;
    let reached = kept.iter().position(|&(_, weight)| {
        sum += f64::from(weight);
        sum >= goal
    });
    kept.truncate(reached.map_or(kept.len(), |index| index + 1));
    sum
}

/// The log-probabilities of a token and of the `count` most likely tokens, in descending order.
pub fn log_probabilities(logits: &[f32], token: u32, count: usize) -> (f32, Vec<(u32, f32)>) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    let norm = max + sum.ln() as f32;
    let mut indices: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.total_cmp(&x).then(a.cmp(b))
    };
    let count = count.min(indices.len());
    if count < indices.len() {
        indices.select_nth_unstable_by(count, order);
        indices.truncate(count);
    }
    indices.sort_by(order);
    let of = |id: u32| logits[id as usize] - norm;
    (
        of(token),
        indices.into_iter().map(|id| (id, of(id))).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f64, top_p: f64, seed: u64) -> Sampler {
        Sampler::new(Sampling {
            temperature,
            top_p,
            seed,
        })
    }

    #[test]
    fn temperature_zero_takes_the_first_of_the_largest() {
        assert_eq!(sampler(0.0, 1.0, 1).pick(&[0.0, 2.0, 2.0]), Some(1));
    }

    #[test]
    fn logits_that_are_not_finite_give_no_token() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(sampler(0.0, 1.0, 1).pick(&[0.0, broken, 2.0]), None);
        }
        assert_eq!(sampler(1.0, 1.0, 1).pick(&[]), None);
    }

    #[test]
    fn frequencies_match_the_softmax() {
        let mut sampler = sampler(2.0, 1.0, 7);
        let logits = [0.0, 2.0 * 3f32.ln()];
        let ones = (0..20_000)
            .filter(|_| sampler.pick(&logits) == Some(1))
            .count();
        // 3 to 1; six standard deviations of 20,000 draws are 0.018.
        assert!((ones as f64 / 20_000.0 - 0.75).abs() < 0.02, "{ones}");
    }

    #[test]
    fn top_p_keeps_only_the_most_likely() {
        let logits: Vec<f32> = [0.1f32, 0.5, 0.15, 0.25].iter().map(|p| p.ln()).collect();
        let mut seen = std::collections::BTreeSet::new();
        let mut sampler = sampler(1.0, 0.7, 3);
        (0..2_000).for_each(|_| {
            seen.insert(sampler.pick(&logits).unwrap());
        });
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn log_probabilities_are_normalized_and_sorted() {
        let logits: Vec<f32> = [0.1f32, 0.6, 0.3].iter().map(|p| p.ln() + 5.0).collect();
        let (own, top) = log_probabilities(&logits, 0, 2);
        assert!((own - 0.1f32.ln()).abs() < 1e-5);
        let ids: Vec<u32> = top.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 2]);
        assert!((top[0].1 - 0.6f32.ln()).abs() < 1e-5);
        assert_eq!(log_probabilities(&logits, 0, 9).1.len(), 3);
    }
}
