//! The schedules that are run.

use super::{Random, SLOT_TIME, SlotScenario, World};

/// A random scenario.
fn scenario(random: &mut Random, is_hard: bool) -> SlotScenario {
    let mut any = |values: &[u64]| values[usize::try_from(random.below(values.len() as u64)).unwrap_or(0)];
    let (max, processes) = (any(&[1, 2, 3, 5, 8, 20, 100]), any(&[2, 3, 4, 5]));
    let hold = any(&[5_000, 50_000, 300_000, 1_200_000]);
    let load = any(&[5, 12, 30]);
    SlotScenario {
        max: u16::try_from(max).unwrap_or(1),
        processes: usize::try_from(processes).unwrap_or(2),
        has_notices: any(&[0, 1]) == 1,
        hold,
        arrivals: (10 * hold * processes / max / load).max(800),
        waiting_percent: any(&[0, 70, 100]),
        large_percent: any(&[0, 30]),
        lost_percent: if is_hard { any(&[0, 3, 15]) } else { 0 },
        late_percent: if is_hard { any(&[0, 2, 10]) } else { 0 },
        longest_pause: if is_hard { 5 * SLOT_TIME / 2 } else { SLOT_TIME / 2 },
        faults: if is_hard { 8 } else { 1 },
        steps_back: true,
        lowers_max: is_hard && any(&[0, 0, 1]) == 1,
        length: 5 * SLOT_TIME,
    }
}

fn run_schedules(count: u64, is_hard: bool) -> u64 {
    let (mut started, mut lost) = (0, 0);
    for seed in 1..=count {
        let mut random = Random::new(seed);
        let scenario = scenario(&mut random, is_hard);
        let mut world = World::new(scenario, random.any());
        world.run();
        let above = world.judge.most_above;
        assert_eq!(above, 0, "seed {seed}, hard {is_hard}: {:?}", world.scenario);
        assert!(world.all_are_taken(), "seed {seed}, hard {is_hard}: slots are gone: {:?}", world.scenario);
        started += world.judge.started;
        lost += world.judge.lost;
    }
    assert!(started > 50 * count, "{started} calls");
    lost
}

/// The number of schedules of each kind; more by this variable.
fn count() -> u64 {
    std::env::var("LIMITER_SLOT_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

#[test]
fn calls_with_slots_are_never_more_than_the_limit_whatever_fails() {
    assert!(run_schedules(count(), true) > 0, "no schedule has lost a slot");
}

#[test]
fn processes_that_stand_still_for_half_a_slot_time_lose_no_slot() {
    assert_eq!(run_schedules(count(), false), 0);
}
