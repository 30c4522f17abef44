use super::*;
use crate::Limit;

const TABLES: [Table; 4] = [Table::DENIALS, Table::LEASES, Table::DEMANDS, Table::FAILURES];
const PLACES: usize = 4096;

fn limit() -> Limit {
    "9/1m".parse().expect("a limit")
}

fn place(hash: CounterHash, table: Table) -> usize {
    hash.place_and_tag(table, PLACES).0
}

/// The number whose product with another one is 1, modulo 2^64.
fn inverse(number: u64) -> u64 {
    (0..6).fold(number, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(number.wrapping_mul(inverse))))
}

/// The hash with this value in a table.
fn with_value(value: u64, table: Table) -> CounterHash {
    let unshift = |value: u64, bits: u32| (0..64 / bits).fold(value, |hash, _| value ^ (hash >> bits));
    let hash = unshift(value, 31).wrapping_mul(inverse(MULTIPLIERS[1]));
    let hash = unshift(hash, 27).wrapping_mul(inverse(MULTIPLIERS[0]));
    CounterHash::new(unshift(hash, 30) ^ table.0)
}

/// An attacker may find such keys by the times of its calls.
#[test]
fn keys_that_agree_in_the_bits_of_one_table_are_spread_over_the_others() {
    const KEYS: u64 = 1 << 16;
    for table in TABLES {
        for low_bits in [12, 16, 32] {
            // All bits that select a place, the low ones, and one more field of the tag.
            let hashes: Vec<_> = (0..KEYS).map(|key| with_value(key << low_bits | 0xA5A, table)).collect();
            assert!(hashes.iter().all(|hash| place(*hash, table) == 0xA5A));
            for other in TABLES.into_iter().filter(|other| *other != table) {
                let mut chains = vec![0; PLACES];
                hashes.iter().for_each(|hash| chains[place(*hash, other)] += 1);
                let longest = chains.into_iter().max();
                // 16 in a place on average. The longest chain of a random function is about 36.
                assert!(longest <= Some(48), "{table:?}, {other:?}, {low_bits}: {longest:?}");
            }
        }
    }
}

#[test]
fn equal_keys_have_one_hash_and_others_with_the_same_head_do_not() {
    let hash = |key: &Key| CounterHash::of(&Request::new(key, limit(), 1));
    let long = |end: &str| Key::new("x".repeat(300)).part(end);
    let read = Key::from_encoded(&long("a").encoded());
    assert!(hash(&long("a")) == hash(&long("a")) && hash(&long("a")) != hash(&long("b")));
    assert!(read.is_ok_and(|read| read == long("a") && hash(&read) == hash(&long("a"))));
    assert_eq!(format!("{:?}", hash(&long("a"))), "CounterHash { .. }");
}
