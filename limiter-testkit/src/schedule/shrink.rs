//! Makes a schedule that fails as short as it goes on failing.

use std::time::Duration;

use super::replay::{Store, replay};
use super::{Operation, Schedule};

/// Returns the shortest schedule found that still fails, and why it fails. The reason is `None` if the schedule does
/// not fail when it is played again.
pub async fn shrunk(store: Store, schedule: Schedule) -> (Schedule, Option<String>) {
    let merging = schedule.merging;
    let of = |operations: &[Operation]| Schedule { merging, operations: operations.to_vec() };
    let fails = async |operations: &[Operation]| replay(store, &of(operations)).await.is_err();
    let shrunk = of(&shrink(schedule.operations, fails).await);
    let why = replay(store, &shrunk).await.err();
    (shrunk, why)
}

/// Leaves out what makes no difference: halves, quarters and so on, down to single operations (delta debugging; Zeller
/// and Hildebrandt, 2002). Waits that then follow each other become one.
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
    fn leaves_what_makes_a_difference() {
        let text: String = (1..40).map(|number| format!("refund {number}\nwait {number}ms\n")).collect();
        let schedule: Schedule = text.parse().expect("a schedule");
        // Fails as long as two refunds are there, with 60 ms between them.
        let fails = async |operations: &[Operation]| {
            let place = |number| operations.iter().position(|operation| *operation == Operation::Refund(number));
            let (Some(first), Some(last)) = (place(7), place(31)) else { return false };
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
