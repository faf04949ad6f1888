//! Runs the same work on several numbers in several threads.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The results of `work` on each number, in the order of the numbers, whatever the number of threads.
pub(super) fn in_parallel<T: Send>(
    numbers: Range<usize>,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let threads = threads.clamp(1, numbers.len().max(1));
    let next = AtomicUsize::new(numbers.start);
    let run = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
            .take_while(|number| *number < numbers.end);
        let done = numbers.map(|number| (number, work(number)));
        done.collect::<Vec<(usize, T)>>()
    };
    let mut done: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
        results
            .flat_map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_each_number_has_one() {
        let squares: Vec<usize> = (3..40).map(|number| number * number).collect();
        for threads in [0, 1, 3, 100] {
            let found = in_parallel(3..40, threads, |number| number * number);
            assert_eq!(found, squares, "{threads} threads");
        }
        assert!(in_parallel(5..5, 4, |number| number).is_empty());
    }

    #[test]
    #[should_panic(expected = "number 2")]
    fn a_panic_of_a_thread_is_that_of_the_caller() {
        in_parallel(0..4, 2, |number| assert!(number != 2, "number {number}"));
    }
}
