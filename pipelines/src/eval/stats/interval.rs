//! Intervals of a rate.

use serde::Serialize;

/// An interval at 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// The 97.5 % quantile of the normal distribution.
pub(super) const Z: f64 = 1.959_963_984_540_054;

/// Wilson's score interval of a rate that was observed over `n` tasks; of `n` = 0: everything.
///
/// `rate` may lie between the multiples of 1/n, as the mean of tasks with several seeds does; the
/// interval is then wider than it need be. Below n = 10 it covers less than it says: 83 to 88 % at
/// n = 4 to 6.
pub fn wilson(rate: f64, n: usize) -> Interval {
    if n == 0 {
        return Interval {
            low: 0.0,
            high: 1.0,
        };
    }
    let n = n as f64;
    let scale = 1.0 + Z * Z / n;
    let centre = (rate + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (rate * (1.0 - rate) / n + Z * Z / (4.0 * n * n)).sqrt();
    // At the ends the bound is the rate itself, rounding aside.
    let low = if rate <= 0.0 { 0.0 } else { centre - half };
    let high = if rate >= 1.0 { 1.0 } else { centre + half };
    Interval {
        low: low.max(0.0),
        high: high.min(1.0),
    }
}

/// Upper 2.5 % quantile of Student's t, by the expansion of Cornish and Fisher around the normal's.
pub(super) fn student(freedom: f64) -> f64 {
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

/// The normal distribution function, to 1.5e-7 (Abramowitz and Stegun 7.1.26).
pub(super) fn normal_cdf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs() / std::f64::consts::SQRT_2);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let tail = poly * (-x * x / 2.0).exp() / 2.0;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_distribution_are_the_tables() {
        for (freedom, t) in [(10.0, 2.228_14), (47.0, 2.011_74), (4.0, 2.776_45)] {
            assert!(
                (student(freedom) - t).abs() < 0.02,
                "{freedom} {}",
                student(freedom)
            );
        }
        assert!((normal_cdf(-Z) - 0.025).abs() < 1e-6);
        assert!((normal_cdf(Z) - 0.975).abs() < 1e-6);
    }

    #[test]
    fn wilson_stays_inside_and_contains_the_rate() {
        for n in 0..40_usize {
            for passed in 0..=n {
                let rate = if n == 0 {
                    0.5
                } else {
                    passed as f64 / n as f64
                };
                let interval = wilson(rate, n);
                assert!(0.0 <= interval.low && interval.high <= 1.0);
                assert!(
                    interval.low <= rate && rate <= interval.high,
                    "{n} {passed}"
                );
            }
        }
    }
}
