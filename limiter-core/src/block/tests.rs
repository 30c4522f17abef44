use std::time::Duration;

use super::*;
use crate::Key;
use crate::clock::Clock;

fn block(text: &str) -> Block {
    text.parse().expect(text)
}

#[test]
fn blocks_grow_until_the_key_was_quiet_for_the_longest() {
    let block = block("1min x2 up to 5min");
    let mut last = None;
    let mut now = 1_000_000;
    for minutes in [1, 2, 4, 5, 5] {
        let state = BlockState::begun(block, last, now);
        assert_eq!(state, BlockState { end: now + minutes * 60_000, length: minutes * 60_000 });
        now = state.end;
        last = Some(state);
    }
    let last = last.expect("some");
    let quiet = last.end + 300_000;
    assert_eq!(BlockState::begun(block, Some(last), quiet - 1).length, 300_000);
    assert_eq!(BlockState::begun(block, Some(last), quiet).length, 60_000);
    assert!(last.is_forgotten(block, quiet) && !last.is_forgotten(block, quiet - 1));
}

#[test]
fn blocks_of_one_length_do_not_grow() {
    let block = block("10min");
    let first = BlockState::begun(block, None, 5);
    assert_eq!(BlockState::begun(block, Some(first), first.end).length, 600_000);
    assert!(first.is_forgotten(block, first.end));
}

#[test]
fn a_block_ends_at_its_end_and_is_void_after_a_step_of_the_clock() {
    let state = BlockState::begun(block("10s"), None, 100_000);
    assert_eq!(state.end_if_in_force(109_999), Some(110_000));
    assert_eq!(state.end_if_in_force(110_000), None);
    assert_eq!(state.end_if_in_force(99_000), Some(110_000), "a small step back");
    assert_eq!(state.end_if_in_force(98_999), None);
    assert_eq!(
        BlockState::begun(block("10s x2 up to 1h"), Some(state), 98_000).length,
        10_000,
        "it does not grow from that"
    );
}

#[test]
fn an_attempt_extends_a_block_at_most_once_a_second() {
    let block = block("10s extended");
    let state = BlockState::begun(block, None, 0);
    assert_eq!(state.extended(block, 999), None);
    assert_eq!(state.extended(block, 1000), Some(BlockState { end: 11_000, length: 10_000 }));
    assert_eq!(state.extended(self::block("10s"), 1000), None);
}

#[test]
fn bad_values_have_messages() {
    let problem = |result: Result<Block, Error>| result.expect_err("a bad value").to_string();
    let minute = Block::new(Duration::from_secs(60)).expect("a block");
    let messages = [
        problem(Block::new(Duration::ZERO)),
        problem(Block::new(Duration::from_secs(10 * 365 * 86_400))),
        problem(minute.growing(0.5, Duration::from_secs(600))),
        problem(minute.growing(f64::NAN, Duration::from_secs(600))),
        problem(minute.growing(2.0, Duration::from_secs(59))),
        problem(minute.growing(1.0, Duration::from_secs(600))),
        problem("ten minutes".parse()),
        problem("1min\nx2".parse()),
    ];
    for message in messages {
        assert!(message.contains("`block` must have") && message.contains(": write "), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_table_of_blocks_is_bounded() {
    let blocked = BlockedKeys::new(16 * 4);
    let now = Clock::System.now();
    let long = BlockRef::of_rule("a table of blocks", block("1h"));
    let short = BlockRef::of_rule("another table of blocks", block("1min"));
    for number in 0..1000 {
        blocked.begin(&Key::new("long:").part(number), long, now);
        blocked.begin(&Key::new("short:").part(number), short, now);
    }
    let in_force = |name: &str, block| {
        (0..1000).filter(|number| blocked.end(&Key::new(name).part(number), block, now, false).is_some()).count()
    };
    let (long, short) = (in_force("long:", long), in_force("short:", short));
    assert!(long + short <= 64 && long > 0, "{long} {short}");
}

#[test]
fn a_rules_block_is_one_value() {
    let (one, again) = (BlockRef::of_rule("login", block("1min")), BlockRef::of_rule("login", block("60s")));
    assert_eq!(one, again);
    assert_ne!(one, BlockRef::of_rule("login", block("2min")));
    assert_ne!(one, BlockRef::of_rule("other", block("1min")));
}
