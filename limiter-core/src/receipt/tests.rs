use limiter_testkit::Random;

use super::book::{ReceiptBook, ReceiptSecret, random_id};
use super::*;
use crate::request::once::ReceiptRefusal;

fn secret(byte: u8) -> ReceiptSecret {
    ReceiptSecret::new(&[byte; 16]).expect("long enough")
}

fn book() -> ReceiptBook {
    ReceiptBook::in_store(secret(7), "rl", 2)
}

fn index(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(len.try_into().expect("small"))).expect("below")
}

fn random_limit(random: &mut Random) -> Limit {
    let algorithm = ALGORITHMS[index(random, ALGORITHMS.len())];
    let number = |random: &mut Random| 1 + u32::try_from(random.below(u64::from(u32::MAX))).expect("below");
    #[cfg(feature = "calendar")]
    if algorithm == Algorithm::Calendar {
        let texts = [
            "5/month",
            "5/month:1",
            "5/month@UTC",
            "5/day@UTC",
            "5/month:31@Europe/Berlin",
            "5/week:sunday@Asia/Tokyo",
            "5/year:04-06@Europe/London",
            "5/hour@America/Argentina/ComodRivadavia",
        ];
        return texts[index(random, texts.len())].parse().expect("a limit");
    }
    let limit = Limit::checked(number(random), 1 + random.below(1_000_000)).expect("valid").with_algorithm(algorithm);
    match random.below(3) {
        0 => limit.with_burst(number(random)).unwrap_or(limit),
        1 => limit.with_layout(Layout::Zset).unwrap_or(limit),
        _ => limit,
    }
}

fn random_body(random: &mut Random, key: Digest) -> ReceiptBody {
    let counters = (0..random.below(4)).map(|_| HeldCounter {
        limit: random_limit(random),
        held: u32::try_from(random.below(1 << 32)).expect("32 bits"),
        requests: u32::try_from(random.below(3)).expect("small"),
    });
    let counters = counters.collect();
    let permits = ReceiptPermits::ALL[index(random, ReceiptPermits::ALL.len())];
    let (stamp, end) = (random.below(1 << 52), random.below(1 << 52));
    ReceiptBody { id: random_id(), key, stamp, end, permits, counters }
}

#[test]
fn every_receipt_has_one_text_that_reads_back() {
    let (book, key, mut random) = (book(), Key::new("a"), Random::new(1));
    for _ in 0..300 {
        let receipt = book.sign(random_body(&mut random, book.key_digest(&key)));
        let text = receipt.to_string();
        assert_eq!(text.parse::<Receipt>().expect("its own text"), receipt);
        assert_eq!(book.open(&receipt, &key).expect("its own key"), &receipt.body);
    }
}

#[cfg(feature = "calendar")]
#[test]
fn a_calendar_keeps_its_anchor_and_its_zone_and_an_old_text_has_the_default_ones() {
    let (book, key) = (book(), Key::new("a"));
    let text_of = |limit: &str| {
        let counters = vec![HeldCounter { limit: limit.parse().expect(limit), held: 3, requests: 1 }];
        let (id, key, permits) = ([7; 16], book.key_digest(&key), ReceiptPermits::Returnable);
        book.sign(ReceiptBody { id, key, stamp: 1, end: 2, permits, counters }).to_string()
    };
    for limit in ["9/month", "9/month:5@Europe/Berlin", "9/day@Asia/Tokyo", "9/quarter:02-28"] {
        let receipt: Receipt = text_of(limit).parse().expect("its own text");
        assert_eq!(receipt.body.counters[0].limit.to_string(), limit);
        assert!(book.open(&receipt, &key).is_ok());
    }
    // It has neither: the text is that of earlier versions.
    assert_eq!(text_of("9/month").len(), "rl1-".len() + 2 * (50 + 26 + 16));
    let lengths = ["9/month:1", "9/month@UTC", "9/month:1@UTC"].map(|limit| text_of(limit).len());
    assert_eq!(lengths, [text_of("9/month").len(); 3]);
    let unknown = text_of("9/month@Europe/Rome").replace("4575726f70652f526f6d65", "4575726f70652f526f6d66");
    assert!(unknown.parse::<Receipt>().is_err(), "no zone of any database");
}

/// Whatever byte of a text is changed, removed or added, no receipt is accepted.
#[test]
fn no_text_with_another_byte_is_accepted() {
    let (book, key, mut random) = (book(), Key::new("a"), Random::new(1));
    for _ in 0..8 {
        let text = book.sign(random_body(&mut random, book.key_digest(&key))).to_string();
        let is_accepted = |text: &str| text.parse::<Receipt>().is_ok_and(|receipt| book.open(&receipt, &key).is_ok());
        assert!(is_accepted(&text));
        for index in 0..text.len() {
            let (head, tail) = (&text[..index], &text[index + 1..]);
            let byte = text.as_bytes()[index];
            for other in (0..8).map(|bit| byte ^ 1 << bit).chain(*b"0f").filter(|other| *other != byte) {
                let changed = format!("{head}{}{tail}", char::from(other));
                assert!(!is_accepted(&changed), "byte {index}");
            }
            assert!(!is_accepted(&format!("{head}{tail}")), "without byte {index}");
            assert!(!is_accepted(head), "truncated to {index} bytes");
        }
        for added in ["0", "00", " ", "\n"] {
            assert!(!is_accepted(&format!("{text}{added}")) && !is_accepted(&format!("{added}{text}")));
        }
    }
}

#[test]
fn a_receipt_of_another_secret_prefix_process_or_key_is_refused() {
    let key = Key::new("a");
    let receipt_of = |book: &ReceiptBook| {
        let mut body = random_body(&mut Random::new(1), book.key_digest(&key));
        body.counters.clear();
        book.sign(body)
    };
    let receipt = receipt_of(&book());
    let others = [
        ReceiptBook::in_store(secret(8), "rl", 2),
        ReceiptBook::in_store(secret(7), "other", 2),
        ReceiptBook::in_memory(secret(7), 2),
    ];
    for other in &others {
        assert_eq!(other.open(&receipt, &key).expect_err("another").kind(), ErrorKind::Config);
        assert!(other.open(&receipt_of(other), &key).is_ok());
    }
    let other_process = ReceiptBook::in_memory(secret(7), 2);
    assert!(other_process.open(&receipt_of(&others[2]), &key).is_err());
    let error = book().open(&receipt, &Key::new("b")).expect_err("another key");
    assert!(error.to_string().starts_with("`key` must be that of the receipt"), "{error}");
}

#[test]
fn a_mark_lasts_until_the_end_and_a_receipt_without_room_for_one_is_refused() {
    let (book, mut random) = (book(), Random::new(1));
    let ending = |end| ReceiptBody { end, ..random_body(&mut Random::new(1), Digest::default()) };
    let (first, second, third) = (ending(10), ending(20), ending(30));
    let kind = |result: Result<(), Error>| result.err().map(|error| error.kind());
    assert_eq!(kind(book.spend(&first, 9)), None);
    assert_eq!(kind(book.spend(&first, 9)), Some(ErrorKind::Settled));
    assert_eq!(kind(book.spend(&second, 9)), None);
    assert_eq!(kind(book.spend(&third, 9)), Some(ErrorKind::OutOfMemory), "two marks are the most");
    assert_eq!(kind(book.spend(&second, 19)), Some(ErrorKind::Settled));
    assert_eq!(book.spend(&first, 10).expect_err("ended").to_string(), Error::from(ReceiptRefusal::Ended).to_string());
    assert_eq!(kind(book.spend(&third, 10)), None, "the first mark is forgotten with its receipt");
    let later = ReceiptBody { end: 40, ..random_body(&mut random, Digest::default()) };
    assert_eq!(kind(book.spend(&later, 19)), Some(ErrorKind::OutOfMemory));
}

#[test]
fn debug_shows_neither_secret_nor_text() {
    let book = book();
    let receipt = book.sign(random_body(&mut Random::new(1), book.key_digest(&Key::new("a"))));
    let shown = format!("{receipt:?} {book:?}");
    let text = receipt.to_string();
    let mac = &text[text.len() - 32..];
    assert!(!shown.contains(mac) && !shown.contains("7, 7") && !shown.contains("0707"), "{shown}");
    assert!(ReceiptSecret::new(&[7; 15]).is_err());
}
