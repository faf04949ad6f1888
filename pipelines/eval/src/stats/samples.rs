//! pass@k and pass^k from several samples of one task.

/// Unbiased estimate of pass@k, the probability that at least one of `k` samples passes, from `n` samples
/// with `c` passes: `1 - C(n-c, k) / C(n, k)`. `None` if k is 0 or exceeds n.
pub fn pass_at_k(n: u64, c: u64, k: u64) -> Option<f64> {
    probability_of_none(n, c.min(n), k).map(|none| 1.0 - none)
}

/// Unbiased estimate of pass^k, the probability that all of `k` samples pass: `C(c, k) / C(n, k)`. `None`
/// if k is 0 or exceeds n.
pub fn pass_hat_k(n: u64, c: u64, k: u64) -> Option<f64> {
    probability_of_none(n, n - c.min(n), k)
}

/// Probability that `k` of `n`, drawn without replacement, include none of `c`. Computed as a product to
/// avoid overflow.
fn probability_of_none(n: u64, c: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n {
        return None;
    }
    if n - c < k {
        return Some(0.0);
    }
    let factors = (n - c + 1..=n).map(|i| 1.0 - k as f64 / i as f64);
    Some(factors.product())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (pass@k, pass^k) by enumerating all subsets.
    fn enumerated(n: u64, c: u64, k: u64) -> (f64, f64) {
        let (mut any, mut all, mut total) = (0.0, 0.0, 0.0);
        for set in 0_u64..1 << n {
            if u64::from(set.count_ones()) == k {
                let passes = u64::from((set & ((1 << c) - 1)).count_ones());
                total += 1.0;
                any += f64::from(u8::from(passes > 0));
                all += f64::from(u8::from(passes == k));
            }
        }
        (any / total, all / total)
    }

    #[test]
    fn both_estimates_match_enumeration() {
        for n in 1..=8 {
            for c in 0..=n {
                for k in 1..=n {
                    let (any, all) = enumerated(n, c, k);
                    assert!(
                        (pass_at_k(n, c, k).unwrap() - any).abs() < 1e-12,
                        "{n} {c} {k}"
                    );
                    assert!(
                        (pass_hat_k(n, c, k).unwrap() - all).abs() < 1e-12,
                        "{n} {c} {k}"
                    );
                }
            }
        }
        assert_eq!(pass_at_k(3, 1, 4), None);
        assert_eq!(pass_at_k(3, 1, 0), None);
        assert!(pass_at_k(1_000_000, 10, 1000).unwrap() > 0.0);
    }
}
