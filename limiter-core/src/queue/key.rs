//! The identity of a queue.

use crate::store::Question;

/// The set of counts that a decision takes permits from. Calls with equal keys wait in one queue.
///
/// Calls with only some counts in common wait apart: one that waits for a count of its own would block all the others.
/// So do calls with another `max` or `burst`: the count is the same, the room in it is not.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueKey {
    One(Count),
    /// Sorted: the order in which a decision names its limits makes no difference.
    Several(Box<[Count]>),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Count {
    subject: Box<[u8]>,
    window_millis: u64,
    max: u32,
    burst: u32,
    algorithm: u8,
    layout: u8,
}

impl From<&[Question<'_>]> for QueueKey {
    fn from(questions: &[Question<'_>]) -> Self {
        if let [question] = questions {
            return Self::One(question.into());
        }
        let mut counts: Box<[Count]> = questions.iter().map(Count::from).collect();
        counts.sort_unstable();
        Self::Several(counts)
    }
}

impl From<&Question<'_>> for Count {
    fn from(Question { key, limit, .. }: &Question<'_>) -> Self {
        Self {
            subject: key.encoding().as_ref().into(),
            window_millis: limit.window_millis(),
            max: limit.max(),
            burst: limit.burst(),
            algorithm: limit.algorithm() as u8,
            layout: limit.layout() as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Key, Layout, Limit};

    fn queue(questions: &[(&Key, Limit)]) -> QueueKey {
        let questions: Vec<_> = questions.iter().map(|&(key, limit)| Question { key, limit, cost: 1 }).collect();
        QueueKey::from(&questions[..])
    }

    #[test]
    fn every_part_of_a_limit_and_every_key_has_a_queue_of_its_own() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        let others = [
            queue(&[(&b, limit)]),
            queue(&[(&a, "6/10s".parse().expect("a limit"))]),
            queue(&[(&a, "5/11s".parse().expect("a limit"))]),
            queue(&[(&a, limit.with_layout(Layout::Zset).expect("a sliding window"))]),
            queue(&[(&a, bucket)]),
            queue(&[(&a, bucket.with_burst(6).expect("a bucket"))]),
            queue(&[(&a, limit), (&b, limit)]),
        ];
        for (index, other) in others.iter().enumerate() {
            assert_ne!(*other, queue(&[(&a, limit)]));
            assert!(others[..index].iter().all(|earlier| earlier != other), "{other:?}");
        }
    }

    #[test]
    fn neither_the_order_of_limits_nor_a_burst_written_out_makes_another_queue() {
        let (a, b) = (Key::new("a"), Key::new("b"));
        let limit: Limit = "5/10s".parse().expect("a limit");
        assert_eq!(queue(&[(&a, limit), (&b, limit)]), queue(&[(&b, limit), (&a, limit)]));
        let bucket = limit.with_algorithm(Algorithm::TokenBucket);
        assert_eq!(queue(&[(&a, bucket)]), queue(&[(&a, bucket.with_burst(5).expect("a bucket"))]));
    }
}
