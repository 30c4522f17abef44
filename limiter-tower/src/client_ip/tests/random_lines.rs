//! Random lines of a header: of any bytes, and lists of the grammar.

use limiter_testkit::Random;

const PIECES: [&[u8]; 30] = [
    b"192.0.2.66",
    b"2001:db8:66::1",
    b"[2001:db8:66::1]",
    b"::ffff:192.0.2.67",
    b"[::1]",
    b"fe80::1%1",
    b":80",
    b":_p",
    b"unknown",
    b"_hidden",
    b"for=",
    b"For=",
    b"for=192.0.2.68",
    b"for=\"[2001:db8:68::1]:80\"",
    b"proto=http",
    b"host=",
    b"\"a,b\"",
    b"\"",
    b"\\",
    b"\\\"",
    b",",
    b", ",
    b";",
    b" ",
    b"\t",
    b"=",
    b"[",
    b"]",
    b"\xff",
    b"\xc3\xa9",
];
const ADDRESSES: [&str; 8] = [
    "203.0.113.1",
    "203.0.113.2:80",
    "[2001:db8:a::1]",
    "[2001:db8:b::1]:4711",
    "2001:db8:c::1",
    "[::ffff:203.0.113.3]",
    "unknown",
    "_hidden",
];
const NAMES: [&str; 6] = ["for", "FOR", "by", "proto", "host", "x!#$%&'*+-.^_`|~"];

fn one_of<'a, T: ?Sized>(random: &mut Random, all: &[&'a T]) -> &'a T {
    all[usize::try_from(random.below(all.len() as u64)).expect("an index")]
}

fn is_legal(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 127)
}

/// Returns a text of at most this many pieces, with any bytes that a header may have.
pub(super) fn text(random: &mut Random, max_pieces: u64) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..random.below(max_pieces + 1) {
        match random.below(8) {
            0 => text.extend(random.any().to_le_bytes().into_iter().take(2).filter(|byte| is_legal(*byte))),
            _ => text.extend(one_of(random, &PIECES)),
        }
    }
    text
}

/// Returns up to three lines of any bytes.
pub(super) fn lines(random: &mut Random, max_pieces: u64) -> Vec<Vec<u8>> {
    (0..random.below(4)).map(|_| text(random, max_pieces)).collect()
}

/// Returns an entry of `X-Forwarded-For`: an address or any bytes without commas.
pub(super) fn entry(random: &mut Random) -> Vec<u8> {
    if random.below(3) > 0 {
        return one_of(random, &ADDRESSES).into();
    }
    text(random, 4).into_iter().filter(|byte| *byte != b',').collect()
}

/// Returns an element of `Forwarded` by the grammar. One of two has exactly one `for`, with an address.
pub(super) fn element(random: &mut Random) -> Vec<u8> {
    let is_plain = random.below(2) == 0;
    let mut pairs: Vec<_> = (0..random.below(4)).map(|_| pair(random)).collect();
    if is_plain {
        pairs.retain(|pair| !pair[..3].eq_ignore_ascii_case(b"for"));
        pairs.push(format!("for=\"{}\"", one_of(random, &ADDRESSES)).into_bytes());
    }
    pairs.join(&b';')
}

fn pair(random: &mut Random) -> Vec<u8> {
    let name = one_of(random, &NAMES);
    let value = match random.below(4) {
        0 => b"203.0.113.4".to_vec(),
        1 => format!("\"{}\"", one_of(random, &ADDRESSES)).into_bytes(),
        2 => b"_token".to_vec(),
        _ => quoted(&text(random, 4)),
    };
    [name.as_bytes(), b"=", &value].concat()
}

/// Returns a quoted string with this content.
fn quoted(content: &[u8]) -> Vec<u8> {
    let escaped = content.iter().flat_map(|byte| match byte {
        b'"' | b'\\' => vec![b'\\', *byte],
        _ => vec![*byte],
    });
    [b'"'].into_iter().chain(escaped).chain([b'"']).collect()
}

/// Returns lines that have these entries: some begin a line, others follow a comma.
pub(super) fn in_lines(random: &mut Random, entries: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut lines = Vec::<Vec<u8>>::new();
    for entry in entries {
        match lines.last_mut() {
            Some(line) if random.below(3) > 0 => {
                line.extend(one_of::<[u8]>(random, &[b",", b", ", b" ,\t"]));
                line.extend(entry);
            }
            _ => lines.push(entry.clone()),
        }
    }
    lines
}
