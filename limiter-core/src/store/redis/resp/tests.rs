use limiter_testkit::{Random, full_or};
use redis::{ErrorKind as RedisKind, Value, parse_redis_value};

use super::{FrameScanner, ReplyFault, decode};

/// Longer than any reply of these tests.
const MAX_BYTES: usize = 1 << 20;
/// The most levels of a reply.
const MAX_DEPTH: usize = 16;

/// Scans bytes that arrive in pieces of these lengths, and then byte by byte. Returns the lengths of all replies.
fn scan_in_pieces(bytes: &[u8], pieces: &[usize], max_bytes: usize) -> Result<Vec<usize>, ReplyFault> {
    let (mut scanner, mut lengths) = (FrameScanner::default(), Vec::new());
    let (mut begin, mut end) = (0, 0);
    let mut pieces = pieces.iter().copied();
    while end < bytes.len() {
        end = (end + pieces.next().unwrap_or(1)).min(bytes.len());
        while begin < end {
            let Some(length) = scanner.scan(&bytes[begin..end], max_bytes)? else { break };
            lengths.push(length);
            begin += length;
        }
    }
    Ok(lengths)
}

fn scan(bytes: &[u8]) -> Result<Vec<usize>, ReplyFault> {
    let whole = scan_in_pieces(bytes, &[bytes.len()], MAX_BYTES);
    assert_eq!(whole, scan_in_pieces(bytes, &[], MAX_BYTES), "{:?}", String::from_utf8_lossy(bytes));
    whole
}

#[test]
fn finds_the_end_of_each_type() {
    let replies = [
        "+OK\r\n",
        "+a\rb\nc\r\n",
        "-ERR no\r\n",
        ":-12\r\n",
        "$0\r\n\r\n",
        "$4\r\n\r\n\r\n\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n:1\r\n*1\r\n+a\r\n",
        "_\r\n",
        ",1.5\r\n",
        "#t\r\n",
        "(123456789012345678901234567890\r\n",
        "!5\r\nERR x\r\n",
        "=7\r\ntxt:abc\r\n",
        "%1\r\n+a\r\n:1\r\n",
        "~2\r\n:1\r\n:2\r\n",
        "|1\r\n+a\r\n:1\r\n:2\r\n",
        "|0\r\n:2\r\n",
        ">2\r\n+message\r\n*1\r\n:1\r\n",
    ];
    let lengths: Vec<_> = replies.iter().map(|reply| reply.len()).collect();
    assert_eq!(scan(replies.concat().as_bytes()), Ok(lengths));
    for reply in replies {
        assert_eq!(scan(&reply.as_bytes()[..reply.len() - 1]), Ok(Vec::new()), "{reply:?} without its last byte");
    }
}

#[test]
fn garbage_is_detected_at_its_first_line() {
    let malformed: [&[u8]; 14] = [
        b"HTTP/1.1 400",
        b"\r\n",
        b"\0",
        b"$x\r\n",
        b"$\r\n",
        b"$-2\r\n",
        b"$+1\r\n",
        b"$ 1\r\n",
        b"*-2\r\n",
        b"%-1\r\n",
        b"!-1\r\n",
        b"$2\r\nabc\r\n",
        b"*2\r\n:1\r\nx",
        b"$?\r\n",
    ];
    for bytes in malformed {
        assert_eq!(scan(bytes), Err(ReplyFault::Malformed), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn announced_lengths_count_at_once() {
    let too_long: [&[u8]; 9] = [
        b"$1073741824\r\n",
        b"$18446744073709551615\r\n",
        b"$99999999999999999999\r\n",
        b"*1073741824\r\n",
        b"%524288\r\n",
        b"|18446744073709551615\r\n",
        b"*2\r\n:1\r\n$1048576\r\n",
        b"=1048576\r\n",
        b">9999999\r\n",
    ];
    for bytes in too_long {
        assert_eq!(scan(bytes), Err(ReplyFault::TooLong), "{:?}", String::from_utf8_lossy(bytes));
    }
    let endless = [b"+".to_vec(), vec![b'a'; MAX_BYTES]].concat();
    assert_eq!(scan_in_pieces(&endless, &[MAX_BYTES / 2, MAX_BYTES], MAX_BYTES), Err(ReplyFault::TooLong));
    for (max_bytes, expected) in [(10, Ok(vec![10])), (9, Err(ReplyFault::TooLong))] {
        for reply in [b"$4\r\nabcd\r\n".as_slice(), b"+abcdefg\r\n", b"*2\r\n_\r\n_\r\n"] {
            assert_eq!(scan_in_pieces(reply, &[10], max_bytes), expected, "{:?}", String::from_utf8_lossy(reply));
        }
    }
}

#[test]
fn levels_are_bounded() {
    let nested = |levels: usize| ["*1\r\n".repeat(levels), ":1\r\n".to_owned()].concat();
    let deepest = nested(MAX_DEPTH);
    assert_eq!(scan(deepest.as_bytes()), Ok(vec![deepest.len()]));
    assert!(decode(deepest.as_bytes()).is_ok());
    assert_eq!(scan(nested(MAX_DEPTH + 1).as_bytes()), Err(ReplyFault::Malformed));
    let endless = "*1\r\n".repeat(100_000);
    assert_eq!(scan_in_pieces(endless.as_bytes(), &[endless.len()], MAX_BYTES), Err(ReplyFault::Malformed));
}

#[test]
fn values_that_are_none_are_malformed() {
    for reply in [":a\r\n", ":\r\n", ":9223372036854775808\r\n", "#x\r\n", ",x\r\n", "=2\r\nab\r\n"] {
        assert_eq!(scan(reply.as_bytes()), Ok(vec![reply.len()]), "{reply:?}");
        assert_eq!(decode(reply.as_bytes()), Err(ReplyFault::Malformed), "{reply:?}");
    }
    assert_eq!(decode(b"+\xff\r\n"), Err(ReplyFault::Malformed));
}

/// Errors must have the kinds that redirects and missing scripts are detected by.
#[test]
fn errors_are_those_of_the_client() {
    for text in ["ERR a b", "MOVED 1 a:1", "ASK 1 a:1", "NOSCRIPT No", "LOADING x", "READONLY", "FOREIGN x", ""] {
        for reply in [format!("-{text}\r\n"), format!("!{}\r\n{text}\r\n", text.len()), format!("*1\r\n-{text}\r\n")] {
            let expected = parse_redis_value(reply.as_bytes()).expect("an error");
            assert_eq!(decode(reply.as_bytes()), Ok(expected), "{reply:?}");
        }
    }
    let moved = decode(b"-MOVED 1 a:1\r\n").map(Value::extract_error).expect("a reply").expect_err("an error");
    assert_eq!(moved.redirect_node(), Some(("a:1", 1)));
    assert_ne!(moved.kind(), RedisKind::Parse);
}

/// Random replies, cut at random places, have the values that the client's parser reads.
#[test]
fn values_are_those_of_the_client() {
    const REPLIES: u64 = 1_000_000;
    let mut random = Random::new(1);
    for _ in 0..full_or(REPLIES, REPLIES / 50) {
        let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
        for _ in 0..=random.below(2) {
            let begin = bytes.len();
            write_value(&mut bytes, &mut random, 3);
            lengths.push(bytes.len() - begin);
        }
        let pieces: Vec<_> = (0..random.below(6)).map(|_| small(&mut random, 12)).collect();
        assert_eq!(scan_in_pieces(&bytes, &pieces, MAX_BYTES), Ok(lengths.clone()));
        let mut rest = bytes.as_slice();
        for length in lengths {
            let (reply, behind) = rest.split_at(length);
            rest = behind;
            let expected = parse_redis_value(reply).map_err(|_| ReplyFault::Malformed);
            assert_eq!(decode(reply), expected, "{:?}", String::from_utf8_lossy(reply));
        }
    }
}

/// A changed byte never makes scanner or decoder panic, and never lets a reply pass that the client rejects.
#[test]
fn changed_bytes_are_no_other_value() {
    const REPLIES: u64 = 1_000_000;
    let mut random = Random::new(2);
    let mut malformed = 0;
    let replies = full_or(REPLIES, REPLIES / 50);
    for _ in 0..replies {
        let mut bytes = Vec::new();
        write_value(&mut bytes, &mut random, 3);
        let place = small(&mut random, bytes.len());
        bytes[place] = [b'\r', b'\n', b'$', b'*', b'0', b'9', b'-', b'%', 0xff][small(&mut random, 9)];
        match scan_in_pieces(&bytes, &[bytes.len()], MAX_BYTES) {
            Ok(lengths) => {
                if let Some(length) = lengths.first() {
                    let expected = parse_redis_value(&bytes[..*length]).map_err(|_| ReplyFault::Malformed);
                    assert_eq!(decode(&bytes[..*length]), expected, "{:?}", String::from_utf8_lossy(&bytes));
                }
            }
            Err(_) => malformed += 1,
        }
    }
    assert!(malformed > replies / 50, "{malformed}");
}

fn small(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(u64::try_from(end).expect("small"))).expect("small")
}

fn write_value(bytes: &mut Vec<u8>, random: &mut Random, levels: usize) {
    let kinds = b"+-:$$$:_,#!=(*%~|>";
    let kind = kinds[small(random, if levels == 0 { 13 } else { kinds.len() })];
    let text: String = (0..small(random, 6)).map(|_| ["a", "\r", "\n", "é", " ", "OK"][small(random, 6)]).collect();
    let line = text.replace(['\r', '\n'], "x");
    let mut header = |text: String| bytes.extend([&[kind], text.as_bytes(), b"\r\n"].concat());
    let values = small(random, 4);
    match kind {
        b':' | b'(' => header(random.any().cast_signed().to_string()),
        b',' => header(format!("{}.5", random.below(100))),
        b'#' => header(["t", "f"][small(random, 2)].to_owned()),
        b'_' => header(String::new()),
        b'$' if random.below(8) == 0 => header("-1".to_owned()),
        b'$' | b'!' | b'=' => {
            let text = if kind == b'=' { format!("txt:{text}") } else { text };
            header(text.len().to_string());
            bytes.extend([text.as_bytes(), b"\r\n"].concat());
        }
        b'*' if random.below(8) == 0 => header("-1".to_owned()),
        b'*' | b'~' | b'%' | b'|' => {
            header(values.to_string());
            let missing = match kind {
                b'%' => 2 * values,
                b'|' => 2 * values + 1,
                _ => values,
            };
            (0..missing).for_each(|_| write_value(bytes, random, levels - 1));
        }
        b'>' => {
            header((values + 1).to_string());
            bytes.extend(b"+message\r\n");
            (0..values).for_each(|_| write_value(bytes, random, levels - 1));
        }
        _ => header(line),
    }
}
