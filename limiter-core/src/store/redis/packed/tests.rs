use std::collections::{BTreeMap, HashSet};

use super::*;

fn buckets(bits: u8) -> PackedBuckets {
    PackedBuckets::of_bits(bits).expect("in range")
}

fn place(name: &str, bits: u8) -> PackedPlace {
    PackedPlace::new(name.as_bytes(), buckets(bits))
}

#[test]
fn each_slot_has_a_short_tag() {
    let tags: HashSet<_> = (0..COUNT).map(tag_of_slot).collect();
    assert_eq!(tags.len(), usize::from(COUNT));
    for slot in 0..COUNT {
        let tag = tag_of_slot(slot);
        assert!((1..=MAX_TAG_LETTERS).contains(&tag.len()), "{slot}");
        assert_eq!(slot_of_tag(tag), slot);
    }
}

#[test]
fn a_hash_is_in_the_slot_of_the_counts_own_name() {
    for user in 0..2000 {
        let name = format!("rl:{{user:@{user}}}10s");
        for bits in [14, 18, 30] {
            let PackedPlace { hash, own, .. } = place(&name, bits);
            assert_eq!([&hash, &own].map(|key| slot_of_name(key)), [slot_of_name(name.as_bytes()); 2], "{name} {bits}");
        }
    }
}

#[test]
fn a_place_is_that_of_the_documentation() {
    let PackedPlace { hash, own, field } = place("rl:{user:@42}10s", 18);
    let field = field.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!((str::from_utf8(&hash), &*field), (Ok("rl#10s/18:{4FI}d"), "a48a0cb4e12c90d2999904912e6abedb"));
    assert_eq!(str::from_utf8(&own), Ok("rl:{user:@42}10s/18"));
    assert!(place("shop:eu:{user:@42}10s", 14).hash.starts_with(b"shop:eu#10s/14:{"));
}

#[test]
fn the_hashes_of_a_slot_are_used_evenly() {
    let mut counts = BTreeMap::<_, usize>::new();
    for item in 0..64_000 {
        // All are in one slot.
        let name = format!("rl:{{a}}{item}ms");
        let PackedPlace { hash, .. } = place(&name, 20);
        *counts.entry(hash[hash.len() - 2..].to_vec()).or_default() += 1;
    }
    assert_eq!(counts.len(), 64);
    assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn another_number_of_hashes_another_window_and_another_key_are_other_places() {
    let first = place("rl:{user:@42}10s", 18);
    let other = place("rl:{user:@42}10s", 19);
    assert!(other.hash != first.hash && other.field != first.field);
    for other in ["rl:{user:@42}10001ms", "rl:{user:@43}10s", "rl2:{user:@42}10s"] {
        assert_ne!(place(other, 18).field, first.field, "{other}");
    }
}

#[test]
fn a_count_that_moved_out_is_remembered_for_a_thousand_calls() {
    let (moved, other) = (place("rl:{a}77001ms", 14), place("rl:{b}77001ms", 14));
    assert!(!moved.has_moved_out());
    moved.remember_moved_out();
    let calls = (0..2000).filter(|_| moved.has_moved_out()).count();
    assert_eq!((calls, other.has_moved_out()), (1000, false));
}

#[test]
fn a_batch_knows_the_places_of_its_counts_and_uses_nothing_up() {
    const NAMES: [&str; 2] = ["rl:{in}77002ms", "rl:{out}77002ms"];
    let (moved, buckets) = (place(NAMES[1], 14), buckets(14));
    moved.remember_moved_out();
    for _ in 0..2_000 {
        let found = NAMES.map(|name| KnownPlace::of(name.as_bytes(), Some(buckets)));
        assert_eq!(found, [KnownPlace::Field, KnownPlace::MovedOut]);
    }
    assert_eq!(KnownPlace::of(NAMES[1].as_bytes(), None), KnownPlace::Key);
    assert!(moved.has_moved_out());
}

#[test]
fn each_refusal_adds_counts_and_a_moving_slot_begins_anew() {
    let declared = DeclaredCounts::default();
    assert_eq!([false, true].map(|is_likely| declared.contains(3, is_likely)), [false, true]);
    assert!(declared.add(&[3, 5]) && declared.contains(3, false) && !declared.contains(4, false));
    declared.retry_without();
    assert!(declared.is_slot_moving() && !declared.contains(3, true));
    assert!((0..MAX_REFUSALS).all(|_| declared.add(&[1])) && !declared.add(&[1]));
}
