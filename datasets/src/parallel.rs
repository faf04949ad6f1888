//! Parallel map over a slice.

use std::panic::resume_unwind;
use std::thread;

use pybench_run::cores;

/// Apply `work` to every item on all cores, and return the results in order. Each core takes a contiguous share
/// of equal length.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let share = items.len().div_ceil(cores()).max(1);
    let part = |items: &[T]| items.iter().map(&work).collect::<Vec<R>>();
    if items.len() <= share {
        return part(items);
    }
    thread::scope(|scope| {
        let shares: Vec<_> = items
            .chunks(share)
            .map(|items| scope.spawn(|| part(items)))
            .collect();
        // Propagate a panic of a worker.
        let joined = shares
            .into_iter()
            .map(|share| share.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        for count in [0, 1, 2, 7, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let squares: Vec<usize> = items.iter().map(|item| item * item).collect();
            assert_eq!(map(&items, |item| item * item), squares);
        }
    }
}
