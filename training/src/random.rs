//! Random numbers that a seed alone determines.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to draw from libtorch's generator, of which a process has one.
pub(crate) struct Seeded(
    #[expect(dead_code, reason = "held until it is dropped")] MutexGuard<'static, ()>,
);

/// Seeds libtorch's generator. No other thread seeds it before the result is dropped; the same thread must not.
pub(crate) fn seed(seed: i64) -> Seeded {
    static GENERATOR: Mutex<()> = Mutex::new(());
    let guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(seed);
    Seeded(guard)
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    #[test]
    fn threads_that_draw_at_once_each_get_their_own_numbers() {
        let drawn = |seed: i64| {
            let _seeded = super::seed(seed);
            let parts: Vec<_> = (0..200)
                .map(|_| Tensor::randn([16], (Kind::Float, Device::Cpu)))
                .collect();
            Tensor::cat(&parts, 0)
        };
        let alone: Vec<_> = (0..4).map(drawn).collect();
        let together: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || drawn(n))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(alone.iter().zip(&together).all(|(a, b)| a.equal(b)));
    }
}
