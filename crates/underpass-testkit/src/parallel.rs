//! Runs many cases on a few threads.

use std::sync::Mutex;
use std::thread;

/// Runs every case on one of `workers` threads, whose number is passed to `run`; returns the
/// results in the order of the cases.
///
/// # Panics
///
/// Panics if a case does.
pub fn in_parallel<C: Send, R: Send>(
    workers: usize,
    cases: impl IntoIterator<Item = C, IntoIter: Send>,
    run: impl Fn(usize, C) -> R + Sync,
) -> Vec<R> {
    let cases = Mutex::new(cases.into_iter().enumerate());
    let next = || {
        cases
            .lock()
            .expect("no case panics while it is taken")
            .next()
    };
    let work = |worker: usize| {
        let mut results = Vec::new();
        while let Some((number, case)) = next() {
            results.push((number, run(worker, case)));
        }
        results
    };
    let mut results = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        let mut results = Vec::new();
        for part in joined {
            results.extend(part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_once_and_results_keep_their_order() {
        let squares = in_parallel(3, 0..100, |worker, case| {
            assert!(worker < 3);
            case * case
        });
        assert_eq!(
            squares,
            (0..100).map(|case| case * case).collect::<Vec<_>>()
        );
    }
}
