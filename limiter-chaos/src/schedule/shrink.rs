//! Shortens a failing schedule.

use std::time::Duration;

use super::replay::{Store, replay};
use super::{Operation, Schedule};

/// Returns the shortest schedule found that still fails, and the reason. The reason is `None` if the replay of that
/// schedule does not fail.
pub async fn shrink_schedule(store: Store, schedule: Schedule) -> (Schedule, Option<String>) {
    let merging = schedule.merging;
    let with_operations = |operations: &[Operation]| Schedule { merging, operations: operations.to_vec() };
    let fails = async |operations: &[Operation]| replay(store, &with_operations(operations)).await.is_err();
    let shrunk = with_operations(&shrink(schedule.operations, fails).await);
    let reason = replay(store, &shrunk).await.err();
    (shrunk, reason)
}

/// Removes operations that are not needed for the failure: halves, quarters and so on, down to single operations (delta
/// debugging; Zeller and Hildebrandt, 2002). Consecutive waits become one.
pub async fn shrink(mut operations: Vec<Operation>, fails: impl AsyncFn(&[Operation]) -> bool) -> Vec<Operation> {
    let mut size = operations.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < operations.len() {
            let mut fewer = operations.clone();
            fewer.drain(from..(from + size).min(operations.len()));
            if fails(&fewer).await {
                operations = fewer;
            } else {
                from += size;
            }
        }
        let joined = join_waits(&operations);
        if joined.len() < operations.len() && fails(&joined).await {
            operations = joined;
        }
        size /= 2;
    }
    operations
}

fn join_waits(operations: &[Operation]) -> Vec<Operation> {
    let mut joined: Vec<Operation> = Vec::new();
    for operation in operations {
        match (joined.last_mut(), operation) {
            (Some(Operation::Wait(before)), Operation::Wait(by)) => *before += *by,
            (_, operation) => joined.push(*operation),
        }
    }
    joined.retain(|operation| *operation != Operation::Wait(Duration::ZERO));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_operations_that_cause_the_failure() {
        let text: String = (1..40).map(|number| format!("refund {number}\nwait {number}ms\n")).collect();
        let schedule: Schedule = text.parse().expect("a schedule");
        // This predicate fails while two refunds are there with 60 ms between them.
        let fails = async |operations: &[Operation]| {
            let position = |number| operations.iter().position(|operation| *operation == Operation::Refund(number));
            let (Some(first), Some(last)) = (position(7), position(31)) else { return false };
            let waits = operations[first..last].iter().map(|operation| match operation {
                Operation::Wait(by) => *by,
                _ => Duration::ZERO,
            });
            waits.sum::<Duration>() >= Duration::from_millis(60)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let shrunk = shrink(schedule.operations, fails).await;
            assert!(shrunk.len() == 3 && fails(&shrunk).await, "{shrunk:?}");
        });
    }
}
