//! Keys as text: the encoding that names in Redis contain, and keys that are read from it.

use crate::key::long_key::LongKey;
use crate::key::{DIGEST_MARK, HEAD_LEN, Key, MAX_LEN, PART_MARK, buffer::Buffer, is_part_byte, is_text_byte};
use crate::{Error, ErrorKind};

impl Key {
    /// The encoding of the key, 1 to 200 bytes, such as `user:@42`. Names in Redis contain it.
    ///
    /// Texts and parts alternate, with `@` between them. Bytes other than letters, digits and a few marks are escaped
    /// as `%40`. A key that is longer than 200 bytes is its first 135 bytes, `+` and its SHA-256 digest. The key of an
    /// empty text is `+`.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Key;
    ///
    /// let key = Key::new("user:").part("a@b").text("/").part(42);
    /// assert_eq!(key.encoded(), "user:@a%40b@/@42");
    /// assert_eq!(Key::from_encoded("user:@a%40b@/@42")?, key);
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    #[must_use]
    pub fn encoded(&self) -> String {
        self.subject().to_string()
    }

    /// Reads a key from its encoding, for a program that resets or reads a counter by its name in Redis.
    ///
    /// The text is that of [`encoded`](Key::encoded), or `+` and the 32 hex digits by which
    /// [`hash_keys`](crate::Builder) replaces a key in Redis. A key of such digits addresses the counter in Redis, with
    /// or without the secret. In this process it is a key of its own, so a [reset](crate::Limiter::reset) by it leaves
    /// the standby limiter's counter and cached denials as they are.
    ///
    /// A key that is read from a digest equals the key that has it. Parts that are added to the two make different
    /// keys.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a text that is no encoding. Each key has only one, so a wrong escape is an error, and
    /// so is an escape of a byte that needs none.
    pub fn from_encoded(encoded: &str) -> Result<Self, Error> {
        parse(encoded).map_err(|problem| Error::new(ErrorKind::Config, encoding_problem(encoded, problem)))
    }

    /// Returns whether the key was read from a digest of `hash_keys`.
    pub(crate) fn is_hmac(&self) -> bool {
        self.long.as_ref().is_some_and(|long| long.is_hmac())
    }
}

/// The reason why a text is no encoding.
#[derive(Clone, Copy)]
enum EncodingProblem {
    Empty,
    TooLong,
    /// The text before this byte is the start of an encoding.
    At(usize),
    /// A text after a part is empty at the end.
    End,
    Digest,
}

/// Returns the message for a text that is no encoding. It does not contain the text, which may be personal data.
fn encoding_problem(encoded: &str, problem: EncodingProblem) -> String {
    match problem {
        EncodingProblem::Empty => {
            "`encoded` must be an encoded key, got an empty text: write `+` for the key of an empty text".to_owned()
        }
        EncodingProblem::TooLong => {
            let len = encoded.len();
            format!("`encoded` must be at most 200 bytes, got {len}: write the text that `Key::encoded` returned")
        }
        EncodingProblem::At(at) => {
            let character = encoded.get(at..).and_then(|rest| rest.chars().next()).unwrap_or_default();
            format!(
                "`encoded` must be texts and parts with escapes such as `%7B`, got {character:?} at byte {at}, which is \
                 no text, part or needed escape: write the text that `Key::encoded` returned"
            )
        }
        EncodingProblem::End => {
            "`encoded` must have a text or a part after the `@` that ends a part, got none: remove the last `@`"
                .to_owned()
        }
        EncodingProblem::Digest => {
            "`encoded` must have 135 bytes of a key before a `+`, and 64 hex digits in lower case after it, or `+` and \
             32 of them for a key of `hash_keys`: write the text that `Key::encoded` returned"
                .to_owned()
        }
    }
}

fn parse(encoded: &str) -> Result<Key, EncodingProblem> {
    if encoded.is_empty() {
        return Err(EncodingProblem::Empty);
    }
    if encoded.len() > MAX_LEN {
        return Err(EncodingProblem::TooLong);
    }
    let Some((head, hex)) = encoded.split_once(DIGEST_MARK) else {
        check_sequence(encoded, Extent::Whole)?;
        let in_part = encoded.matches(PART_MARK).count() % 2 == 1;
        return Ok(Key { head: buffer_of(encoded), long: None, in_part });
    };
    check_sequence(head, Extent::Head)?;
    if head.is_empty() && hex.is_empty() {
        return Ok(Key::new(""));
    }
    let long = LongKey::from_hex(hex).ok_or(EncodingProblem::Digest)?;
    // Only a key of `hash_keys` to which pieces were added has a SHA-256 digest and no head.
    let is_head = if long.is_hmac() { head.is_empty() } else { head.is_empty() || head.len() == HEAD_LEN };
    if !is_head {
        return Err(EncodingProblem::Digest);
    }
    Ok(Key { head: buffer_of(head), long: Some(Box::new(long)), in_part: false })
}

fn buffer_of(text: &str) -> Buffer {
    let mut buffer = Buffer::EMPTY;
    buffer.push(text);
    buffer
}

/// The extent of a text: a whole sequence, or the start of one that is cut anywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Head,
}

/// Checks that the grammar produces a sequence.
fn check_sequence(sequence: &str, extent: Extent) -> Result<(), EncodingProblem> {
    let mut pieces = sequence.split(PART_MARK).enumerate().peekable();
    let mut start = 0;
    while let Some((index, piece)) = pieces.next() {
        let is_last = pieces.peek().is_none();
        let is_text = index % 2 == 0;
        if extent == Extent::Whole && is_last && is_text && piece.is_empty() {
            return Err(EncodingProblem::End);
        }
        let is_kept = if is_text { is_text_byte } else { is_part_byte };
        let extent = if is_last { extent } else { Extent::Whole };
        check_piece(piece.as_bytes(), is_kept, extent).map_err(|at| EncodingProblem::At(start + at))?;
        start += piece.len() + PART_MARK.len();
    }
    Ok(())
}

/// Checks that a piece consists of kept bytes, and of escaped characters that need it.
///
/// # Errors
/// The position of the first wrong byte, or of the escaped character with a wrong escape.
fn check_piece(piece: &[u8], is_kept: fn(u8) -> bool, extent: Extent) -> Result<(), usize> {
    let mut at = 0;
    while at < piece.len() {
        if is_kept(piece[at]) {
            at += 1;
            continue;
        }
        let start = at;
        // A character has at most four bytes.
        let mut bytes = Vec::with_capacity(4);
        loop {
            match read_escape(&piece[at..]) {
                Escape::Byte(byte) => bytes.push(byte),
                Escape::Cut if extent == Extent::Head => return Ok(()),
                Escape::Cut | Escape::Wrong => return Err(start),
            }
            at += ESCAPE_LEN;
            match std::str::from_utf8(&bytes) {
                Ok(character) if character.bytes().any(is_kept) => return Err(start),
                Ok(_) => break,
                Err(error) if error.error_len().is_some() => return Err(start),
                Err(_) if at == piece.len() && extent == Extent::Head => return Ok(()),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

const ESCAPE_LEN: usize = "%40".len();

/// The result of reading the escape at the start of some bytes.
enum Escape {
    Byte(u8),
    /// The bytes end inside of the escape.
    Cut,
    Wrong,
}

fn read_escape(bytes: &[u8]) -> Escape {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    match bytes {
        [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Escape::Byte(high << 4 | low),
            _ => Escape::Wrong,
        },
        [b'%'] => Escape::Cut,
        [b'%', high] if digit(*high).is_some() => Escape::Cut,
        _ => Escape::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use limiter_testkit::{Random, full_or};

    use super::*;

    const PIECES: [&str; 22] = [
        "",
        "a",
        "Z9",
        "-_.",
        ":",
        "/",
        "@",
        "@@",
        "%",
        "%4",
        "%40",
        "{",
        "}",
        "+",
        " ",
        "\0",
        "\u{7f}",
        "é",
        "€",
        "🦀",
        "\u{10ffff}",
        "user:",
    ];

    fn random_key(random: &mut Random) -> Key {
        let mut key = Key::new("");
        for _ in 0..=random.below(5) {
            let mut content = String::new();
            for _ in 0..random.below(4) {
                let times = if random.below(8) == 0 { random.between(20, 120) } else { 1 };
                let piece = PIECES[usize::try_from(random.below(22)).expect("small")];
                content.push_str(&piece.repeat(usize::try_from(times).expect("small")));
            }
            key = if random.below(2) == 0 { key.text(&content) } else { key.part(content) };
        }
        key
    }

    #[test]
    fn every_key_is_read_back_from_its_encoding() {
        let mut random = Random::new(13);
        let (mut long, mut cut_escapes) = (0, 0);
        let keys = full_or(400_000, 40_000);
        for _ in 0..keys {
            let key = random_key(&mut random);
            let encoded = key.encoded();
            let read = Key::from_encoded(&encoded).unwrap_or_else(|error| panic!("{encoded}: {error}"));
            assert!(read == key && read.encoded() == encoded, "{encoded}");
            let is_long = key.long.is_some();
            long += usize::from(is_long);
            cut_escapes += usize::from(is_long && encoded[HEAD_LEN - 2..HEAD_LEN].contains('%'));
            if is_long {
                let continued = [key.clone().part(7), read.part(7)].map(|key| key.encoded());
                assert_ne!(continued[0], continued[1], "the digest of the sequence cannot be continued");
            } else {
                assert_eq!(read.clone().part(7).text("x"), key.clone().part(7).text("x"), "{encoded}");
                assert_eq!(read.text("x"), key.text("x"), "{encoded}");
            }
        }
        assert!(long > keys / 10 && cut_escapes > keys / 100, "{long} and {cut_escapes} of {keys}");
    }

    /// Pieces added to a key that was read from a digest make keys of their own, which are read back as well.
    #[test]
    fn keys_that_continue_a_digest_are_distinct() {
        let long = Key::new("a".repeat(300)).encoded();
        let keyed = "+".to_owned() + &"0f".repeat(16);
        let mut seen = std::collections::HashSet::new();
        for encoded in [long.as_str(), keyed.as_str()] {
            let key = || Key::from_encoded(encoded).expect("an encoding");
            let keys = [
                key(),
                key().part(""),
                key().part("x"),
                key().text("x"),
                key().part("x").text("y"),
                key().part("x").part("y"),
            ];
            for key in keys {
                let encoded = key.encoded();
                assert!(encoded.len() <= MAX_LEN);
                assert_eq!(Key::from_encoded(&encoded).expect("an encoding"), key);
                assert!(seen.insert(encoded));
            }
        }
        assert_eq!(Key::from_encoded(&keyed).expect("an encoding").text("").encoded(), keyed);
    }

    /// A random change of an encoding is no encoding, or that of another key.
    #[test]
    fn a_text_is_the_encoding_of_at_most_one_key() {
        let mut random = Random::new(14);
        let bytes = b"aG%@+{:0123456789ABCDEFabcdef\x7f/".map(char::from);
        let mut valid = 0;
        for _ in 0..full_or(1_000_000, 100_000) {
            let mut encoded: Vec<char> = random_key(&mut random).encoded().chars().collect();
            let at = usize::try_from(random.below(encoded.len() as u64)).expect("small");
            let byte = bytes[usize::try_from(random.below(bytes.len() as u64)).expect("small")];
            match random.below(3) {
                0 => encoded[at] = byte,
                1 => encoded.insert(at, byte),
                _ => drop(encoded.remove(at)),
            }
            let encoded: String = encoded.into_iter().collect();
            if let Ok(key) = Key::from_encoded(&encoded) {
                valid += 1;
                assert_eq!(key.encoded(), encoded);
                if let Some(rebuilt) = rebuilt(&encoded) {
                    assert_eq!(rebuilt.encoded(), encoded, "it is the encoding of no key");
                }
            }
        }
        assert!(valid > 1_000, "{valid}");
    }

    /// Builds a short key anew, from its decoded texts and parts.
    fn rebuilt(encoded: &str) -> Option<Key> {
        if encoded.contains(DIGEST_MARK) {
            return None;
        }
        let mut key = Key::new("");
        for (index, piece) in encoded.split(PART_MARK).enumerate() {
            let mut bytes = Vec::new();
            let mut rest = piece.as_bytes();
            while let Some((first, after)) = rest.split_first() {
                match read_escape(rest) {
                    Escape::Byte(byte) => {
                        bytes.push(byte);
                        rest = &rest[ESCAPE_LEN..];
                    }
                    _ => {
                        bytes.push(*first);
                        rest = after;
                    }
                }
            }
            let piece = String::from_utf8(bytes).expect("escapes of whole characters");
            key = if index % 2 == 0 { key.text(&piece) } else { key.part(piece) };
        }
        Some(key)
    }

    #[test]
    fn texts_that_are_no_encoding_are_rejected() {
        let (head, hex) = ("a".repeat(HEAD_LEN), "0f".repeat(32));
        let cases = [
            ("".to_owned(), "an empty text"),
            ("a".repeat(201), "got 201"),
            ("user:{42}".to_owned(), "'{' at byte 5"),
            ("user 42".to_owned(), "' ' at byte 4"),
            ("é".to_owned(), "'é' at byte 0"),
            ("user:@4:2".to_owned(), "':' at byte 7"),
            ("a%7b".to_owned(), "'%' at byte 1"),
            ("a%7".to_owned(), "'%' at byte 1"),
            ("a%".to_owned(), "'%' at byte 1"),
            ("a%%41".to_owned(), "'%' at byte 1"),
            ("a%G0".to_owned(), "'%' at byte 1"),
            ("a%+1".to_owned(), "64 hex digits"),
            ("%41".to_owned(), "'%' at byte 0"),
            ("%3A".to_owned(), "'%' at byte 0"),
            ("%C3".to_owned(), "'%' at byte 0"),
            ("a%C3a".to_owned(), "'%' at byte 1"),
            ("%FF".to_owned(), "'%' at byte 0"),
            ("%C3%28".to_owned(), "'%' at byte 0"),
            ("a@b@".to_owned(), "remove the last `@`"),
            ("a@@".to_owned(), "remove the last `@`"),
            ("+a".to_owned(), "64 hex digits"),
            ("++".to_owned(), "64 hex digits"),
            ("a+".to_owned(), "64 hex digits"),
            (format!("+{}", "0F".repeat(16)), "64 hex digits"),
            (format!("+{}", "0f".repeat(15)), "64 hex digits"),
            (format!("a+{}", "0f".repeat(16)), "64 hex digits"),
            (format!("{head}+{}", "0f".repeat(16)), "64 hex digits"),
            (format!("a{head}+{}", &hex[1..]), "64 hex digits"),
            (format!("{}+{hex}", &head[1..]), "64 hex digits"),
            (format!("{head}+{}", hex.to_uppercase()), "64 hex digits"),
            (format!("{}{{+{hex}", &head[1..]), "'{' at byte 134"),
            (format!("{}%4g+{hex}", &head[3..]), "'%' at byte 132"),
        ];
        for (encoded, expected) in cases {
            let error = Key::from_encoded(&encoded).expect_err(&encoded);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(expected), "{encoded}: {error}");
        }
    }

    #[test]
    fn a_message_does_not_contain_the_key() {
        let error = Key::from_encoded("user:@secret@{").expect_err("no encoding");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}
