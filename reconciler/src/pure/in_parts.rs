//! Work on many values that are worked on each by itself: in parts, a thread for each that the machine has.
//!
//! Invariant: the outcome and its order are those of one thread.

/// Fewer values than this are worked on by one thread: starting others costs more.
const WORTH_THREADS: usize = 256;

/// What `work` makes of the values, part by part, in their order.
pub(crate) fn in_parts<T: Sync, R: Send>(values: &[T], work: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    if values.len() < WORTH_THREADS || threads < 2 {
        return work(values);
    }
    let work = &work;
    std::thread::scope(|scope| {
        let parts: Vec<_> = (values.chunks(values.len().div_ceil(threads)))
            .map(|part| (part, scope.spawn(move || work(part))))
            .collect();
        parts
            .into_iter()
            // A thread that could not do it leaves its part to this one.
            .flat_map(|(part, thread)| thread.join().unwrap_or_else(|_| work(part)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_is_in_the_order_of_the_values_however_many_there_are() {
        for count in [0, 1, 255, 256, 1_001] {
            let values: Vec<usize> = (0..count).collect();
            let twice = in_parts(&values, |part| part.iter().map(|n| n * 2).collect());
            assert_eq!(twice, (0..count).map(|n| n * 2).collect::<Vec<_>>());
        }
    }
}
