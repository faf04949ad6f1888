//! Direct preference optimization (arXiv 2305.18290): the loss of pairs of a chosen and a rejected reply, with the names
//! and formulas of TRL.

use std::fmt;
use std::ops::AddAssign;

use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::model::{DocumentLoss, Loss};

/// The section `[dpo]` of a recipe.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DpoConfig {
    /// How strongly the model is held to the reference; higher values allow less distance.
    pub beta: f64,
    /// One loss, or several that are added.
    #[serde(deserialize_with = "one_or_several")]
    pub loss_type: Vec<LossType>,
    /// Weights of the losses. Default: 1 each.
    pub loss_weights: Vec<f64>,
    /// The share of pairs that are assumed to be in the wrong order, for `robust`.
    pub label_smoothing: f64,
}

impl Default for DpoConfig {
    fn default() -> Self {
        Self {
            beta: 0.1,
            loss_type: vec![LossType::Sigmoid],
            loss_weights: vec![],
            label_smoothing: 0.0,
        }
    }
}

/// The loss of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossType {
    /// `-log sigmoid(margin)`, that of the paper.
    Sigmoid,
    /// The same with log-probabilities per token.
    SigmoidNorm,
    /// `max(0, 1 - margin)` (arXiv 2309.06657).
    Hinge,
    /// Squared distance of the margin per token from `1 / (2 beta)` (arXiv 2310.12036).
    Ipo,
    /// `sigmoid` for labels of which a share is wrong (arXiv 2403.00409).
    Robust,
    /// The loss per token of the chosen replies, as in supervised training.
    Sft,
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LossType>, D::Error> {
    struct OneOrSeveral;
    impl<'de> Visitor<'de> for OneOrSeveral {
        type Value = Vec<LossType>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a loss such as \"sigmoid\", or a list of losses")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
            LossType::deserialize(StrDeserializer::new(name)).map(|loss| vec![loss])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(names))
        }
    }
    deserializer.deserialize_any(OneOrSeveral)
}

/// A number for each conversation of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair<T> {
    pub chosen: T,
    pub rejected: T,
}

impl Pair<f64> {
    fn margin(self) -> f64 {
        self.chosen - self.rejected
    }
}

/// What the loss of a pair is a function of.
#[derive(Clone, Copy, Debug)]
struct PairTerms {
    /// Log-probabilities of the replies.
    logps: Pair<f64>,
    /// Those of the reference model.
    reference: Pair<f64>,
    /// Numbers of tokens of the replies.
    tokens: Pair<f64>,
    /// The factor that makes the sum of negative log-probabilities of chosen replies the number of pairs times the loss
    /// per token.
    sft_scale: f64,
}

impl LossType {
    /// The loss of a pair, and its derivatives by both log-probabilities.
    fn of(self, config: &DpoConfig, pair: PairTerms) -> (f64, Pair<f64>) {
        let beta = config.beta;
        let ratios = Pair {
            chosen: pair.logps.chosen - pair.reference.chosen,
            rejected: pair.logps.rejected - pair.reference.rejected,
        };
        let whole = Pair {
            chosen: 1.0,
            rejected: 1.0,
        };
        let per_token = Pair {
            chosen: 1.0 / pair.tokens.chosen.max(1.0),
            rejected: 1.0 / pair.tokens.rejected.max(1.0),
        };
        let scale = match self {
            Self::SigmoidNorm | Self::Ipo => per_token,
            _ => whole,
        };
        let delta = scale.chosen * ratios.chosen - scale.rejected * ratios.rejected;
        let margin = beta * delta;
        // The loss, and its derivative by `delta`.
        let (loss, slope) = match self {
            Self::Sigmoid | Self::SigmoidNorm => (-log_sigmoid(margin), -beta * sigmoid(-margin)),
            Self::Hinge if margin < 1.0 => (1.0 - margin, -beta),
            Self::Hinge => (0.0, 0.0),
            Self::Ipo => {
                let distance = delta - 1.0 / (2.0 * beta);
                (distance * distance, 2.0 * distance)
            }
            Self::Robust => {
                let (right, wrong) = (1.0 - config.label_smoothing, config.label_smoothing);
                let loss = -right * log_sigmoid(margin) + wrong * log_sigmoid(-margin);
                let slope = -right * sigmoid(-margin) - wrong * sigmoid(margin);
                (loss / (right - wrong), beta * slope / (right - wrong))
            }
            Self::Sft => {
                let slopes = Pair {
                    chosen: -pair.sft_scale,
                    rejected: 0.0,
                };
                return (-pair.sft_scale * pair.logps.chosen, slopes);
            }
        };
        let slopes = Pair {
            chosen: slope * scale.chosen,
            rejected: -slope * scale.rejected,
        };
        (loss, slopes)
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn log_sigmoid(x: f64) -> f64 {
    // Neither exponential overflows.
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

impl DpoConfig {
    /// The losses with their weights.
    fn losses(&self) -> impl Iterator<Item = (LossType, f64)> {
        let weights = self.loss_weights.iter().copied();
        let weights = weights.chain(std::iter::repeat(1.0));
        self.loss_type.iter().copied().zip(weights)
    }

    /// The loss of a pair, and its derivatives by both log-probabilities.
    fn pair_loss(&self, pair: PairTerms) -> (f64, Pair<f64>) {
        let mut sum = (0.0, Pair::default());
        for (loss_type, weight) in self.losses() {
            let (loss, slopes) = loss_type.of(self, pair);
            sum.0 += weight * loss;
            sum.1.chosen += weight * slopes.chosen;
            sum.1.rejected += weight * slopes.rejected;
        }
        sum
    }

    /// The loss of a batch of pairs from the log-probabilities of its conversations and the numbers of tokens of their
    /// replies, the chosen one of each pair first, and what is measured of it. `sft_scale` is the number of pairs per
    /// chosen token of the whole step.
    pub fn batch_loss(
        &self,
        logps: &[f64],
        tokens: &[i64],
        reference: &[Pair<f64>],
        sft_scale: f64,
    ) -> (DocumentLoss, PreferenceSums) {
        let mut sums = PreferenceSums::default();
        let (mut loss, mut factors) = (Loss::default(), vec![]);
        let pairs = logps.chunks_exact(2).zip(tokens.chunks_exact(2));
        for ((logps, tokens), &reference) in pairs.zip(reference) {
            let terms = PairTerms {
                logps: Pair {
                    chosen: logps[0],
                    rejected: logps[1],
                },
                reference,
                tokens: Pair {
                    chosen: tokens[0] as f64,
                    rejected: tokens[1] as f64,
                },
                sft_scale,
            };
            let (of_pair, slopes) = self.pair_loss(terms);
            factors.extend([-slopes.chosen, -slopes.rejected]);
            loss += Loss {
                sum: of_pair,
                weight: 1.0,
            };
            sums += PreferenceSums::of_pair(self.beta, terms.logps, reference);
        }
        (DocumentLoss { loss, factors }, sums)
    }
}

/// Sums over pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PreferenceSums {
    rewards: Pair<f64>,
    accurate: f64,
    logps: Pair<f64>,
}

/// Means over the pairs of a step, with TRL's names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PreferenceMetrics {
    /// `beta` times the log-ratio of model and reference.
    #[serde(rename = "rewards/chosen")]
    pub rewards_chosen: f64,
    #[serde(rename = "rewards/rejected")]
    pub rewards_rejected: f64,
    /// The share of pairs with a higher reward of the chosen reply.
    #[serde(rename = "rewards/accuracies")]
    pub rewards_accuracies: f64,
    /// Reward of the chosen minus that of the rejected reply.
    #[serde(rename = "rewards/margins")]
    pub rewards_margins: f64,
    /// Log-probability of a chosen reply, in nats.
    #[serde(rename = "logps/chosen")]
    pub logps_chosen: f64,
    #[serde(rename = "logps/rejected")]
    pub logps_rejected: f64,
}

impl PreferenceMetrics {
    /// Each with its name.
    pub(super) fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("rewards/chosen", self.rewards_chosen),
            ("rewards/rejected", self.rewards_rejected),
            ("rewards/accuracies", self.rewards_accuracies),
            ("rewards/margins", self.rewards_margins),
            ("logps/chosen", self.logps_chosen),
            ("logps/rejected", self.logps_rejected),
        ]
    }
}

impl PreferenceSums {
    fn of_pair(beta: f64, logps: Pair<f64>, reference: Pair<f64>) -> Self {
        let rewards = Pair {
            chosen: beta * (logps.chosen - reference.chosen),
            rejected: beta * (logps.rejected - reference.rejected),
        };
        Self {
            accurate: f64::from(u8::from(rewards.margin() > 0.0)),
            rewards,
            logps,
        }
    }

    /// As numbers that processes can sum.
    pub(super) fn to_array(self) -> [f64; 5] {
        let Self {
            rewards,
            accurate,
            logps,
        } = self;
        [
            rewards.chosen,
            rewards.rejected,
            accurate,
            logps.chosen,
            logps.rejected,
        ]
    }

    pub(super) fn from_array(
        [chosen, rejected, accurate, of_chosen, of_rejected]: [f64; 5],
    ) -> Self {
        Self {
            rewards: Pair { chosen, rejected },
            accurate,
            logps: Pair {
                chosen: of_chosen,
                rejected: of_rejected,
            },
        }
    }

    /// The means over so many pairs.
    pub fn means(self, pairs: f64) -> PreferenceMetrics {
        PreferenceMetrics {
            rewards_chosen: self.rewards.chosen / pairs,
            rewards_rejected: self.rewards.rejected / pairs,
            rewards_accuracies: self.accurate / pairs,
            rewards_margins: self.rewards.margin() / pairs,
            logps_chosen: self.logps.chosen / pairs,
            logps_rejected: self.logps.rejected / pairs,
        }
    }
}

impl AddAssign for PreferenceSums {
    fn add_assign(&mut self, other: Self) {
        self.rewards.chosen += other.rewards.chosen;
        self.rewards.rejected += other.rewards.rejected;
        self.accurate += other.accurate;
        self.logps.chosen += other.logps.chosen;
        self.logps.rejected += other.logps.rejected;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [LossType; 6] = [
        LossType::Sigmoid,
        LossType::SigmoidNorm,
        LossType::Hinge,
        LossType::Ipo,
        LossType::Robust,
        LossType::Sft,
    ];

    fn terms(chosen: f64, rejected: f64) -> PairTerms {
        PairTerms {
            logps: Pair { chosen, rejected },
            reference: Pair {
                chosen: -20.0,
                rejected: -31.0,
            },
            tokens: Pair {
                chosen: 7.0,
                rejected: 11.0,
            },
            sft_scale: 0.3,
        }
    }

    #[test]
    fn slopes_are_the_derivatives_of_the_loss() {
        let step = 1e-5;
        for loss_type in ALL {
            let config = DpoConfig {
                beta: 0.3,
                loss_type: vec![loss_type, LossType::Sft],
                loss_weights: vec![0.7, 0.2],
                label_smoothing: 0.1,
            };
            let loss = |chosen, rejected| config.pair_loss(terms(chosen, rejected)).0;
            for (chosen, rejected) in [(-18.0, -30.0), (-25.0, -29.0), (-19.0, -60.0)] {
                let (_, slopes) = config.pair_loss(terms(chosen, rejected));
                let by_chosen = loss(chosen + step, rejected) - loss(chosen - step, rejected);
                let by_rejected = loss(chosen, rejected + step) - loss(chosen, rejected - step);
                for (slope, difference) in
                    [(slopes.chosen, by_chosen), (slopes.rejected, by_rejected)]
                {
                    let measured = difference / (2.0 * step);
                    assert!(
                        (slope - measured).abs() < 1e-6,
                        "{loss_type:?}: {slope} {measured}"
                    );
                }
            }
        }
    }

    #[test]
    fn losses_are_finite_far_from_the_reference() {
        for loss_type in ALL {
            let config = DpoConfig {
                loss_type: vec![loss_type],
                ..DpoConfig::default()
            };
            for (chosen, rejected) in [(-1e6, 0.0), (0.0, -1e6)] {
                let (loss, slopes) = config.pair_loss(terms(chosen, rejected));
                let all = [loss, slopes.chosen, slopes.rejected];
                assert!(
                    all.iter().all(|number| number.is_finite()),
                    "{loss_type:?} {all:?}"
                );
            }
        }
    }

    #[test]
    fn a_loss_is_a_name_or_a_list() {
        let parse = |text: &str| toml::from_str::<DpoConfig>(text);
        let one = parse("loss_type = 'ipo'").unwrap();
        assert_eq!(one.loss_type, [LossType::Ipo]);
        let two = parse("loss_type = ['sigmoid', 'sft']\nloss_weights = [1, 0.2]").unwrap();
        assert_eq!(two.loss_type, [LossType::Sigmoid, LossType::Sft]);
        assert_eq!(parse("").unwrap(), DpoConfig::default());
        let error = parse("loss_type = 'sigmoyd'").unwrap_err().to_string();
        assert!(
            error.contains("sigmoyd") && error.contains("`sigmoid_norm`"),
            "{error}"
        );
        assert!(parse("loss_type = 3").is_err());
    }
}
