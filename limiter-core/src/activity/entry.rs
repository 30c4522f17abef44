//! The text of an entry in the stream: totals of one limiter since its start.
//!
//! # Grammar
//!
//! ```text
//! entry   = "1" SP id SP host SP pid SP name LF *line
//! line    = rule / key / later                       ; a later version may add lines and words
//! rule    = "r" SP name SP millis *(SP count) LF
//! count   = letter total [ "+" added ]               ; `d340+12`
//! letter  = "a" / "d" / "s" / "c" / "l" / "b" / "p"  ; allowed, denied, shadowed, by cache, lease, standby, policy
//! key     = ( "d" / "a" ) SP number SP key SP total [ "+" added ] SP error LF
//! ```
//!
//! `millis` is the time in which the added decisions were made, and `number` that of a rule of the entry, from 0. A count of 0
//! is left out. In names each byte that is no ASCII letter, digit or mark is `%` and two digits. An entry has at most 4 kB.

use std::borrow::Cow;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::counters::{ActivityCounts, COUNTS};

/// The longest text of an entry.
pub(super) const MAX_BYTES: usize = 4096;
/// The part of it that rules may fill while there are keys.
const MAX_RULE_BYTES_WITH_KEYS: usize = 2048;
/// The longest part of a rule's name that is written.
const MAX_NAME_BYTES: usize = 100;
/// The longest word that is read.
const MAX_WORD_BYTES: usize = 400;
/// The number of the format.
const VERSION: &str = "1";
/// The letters of counts, in the order of [`ActivityCounts`].
const LETTERS: [char; COUNTS] = ['a', 'd', 's', 'c', 'l', 'b', 'p'];

/// The kind of a top key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyKind {
    Denied,
    Allowed,
}

/// The counts of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleLine {
    pub(super) rule: String,
    /// The time in which the added decisions were made.
    pub(super) millis: u64,
    pub(super) total: ActivityCounts,
    pub(super) added: ActivityCounts,
}

/// The count of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyLine {
    pub(super) kind: KeyKind,
    /// The place of its rule among those of the entry.
    pub(super) rule: usize,
    pub(super) key: String,
    pub(super) total: u64,
    pub(super) added: u64,
    pub(super) error: u64,
}

/// An entry while it is made.
pub(super) struct EntryText {
    text: String,
    rules: usize,
    has_keys: bool,
}

impl EntryText {
    /// Begins an entry. `place` is the id, the host and the process. Rules leave room for keys if there are some.
    pub(super) fn new(place: &str, name: &str, has_keys: bool) -> Self {
        Self { text: format!("{VERSION} {place} {}\n", escaped(name)), rules: 0, has_keys }
    }

    /// Adds a rule, and returns its number. `None` if there is no room.
    pub(super) fn add_rule(&mut self, line: &RuleLine) -> Option<usize> {
        let RuleLine { rule, millis, total, added } = line;
        let mut text = format!("r {} {millis}", escaped(&shortened(rule)));
        for ((letter, total), added) in LETTERS.iter().zip(total.as_array()).zip(added.as_array()) {
            if total > 0 {
                let _ = write!(text, " {letter}{}", count_word(total, added));
            }
        }
        let room = if self.has_keys { MAX_RULE_BYTES_WITH_KEYS } else { MAX_BYTES };
        self.push(&text, room).then(|| {
            self.rules += 1;
            self.rules - 1
        })
    }

    /// Adds a key. Returns whether there was room.
    pub(super) fn add_key(&mut self, line: &KeyLine) -> bool {
        let KeyLine { kind, rule, key, total, added, error } = line;
        let kind = if *kind == KeyKind::Denied { 'd' } else { 'a' };
        let count = count_word(*total, *added);
        self.push(&format!("{kind} {rule} {key} {count} {error}"), MAX_BYTES)
    }

    fn push(&mut self, line: &str, room: usize) -> bool {
        let has_room = self.text.len() + line.len() < room;
        if has_room {
            self.text.push_str(line);
            self.text.push('\n');
        }
        has_room
    }

    /// The text. `None` without any rule.
    pub(super) fn finish(self) -> Option<String> {
        (self.rules > 0).then_some(self.text)
    }
}

/// Returns the word of a total and of what was added to it.
fn count_word(total: u64, added: u64) -> String {
    if added == 0 { total.to_string() } else { format!("{total}+{added}") }
}

/// Reads a total and what was added to it, which is never more.
fn parse_count(word: &str) -> Option<(u64, u64)> {
    let (total, added) = word.split_once('+').unwrap_or((word, "0"));
    let (total, added) = (number(total)?, number(added)?);
    Some((total, added.min(total)))
}

/// Reads decimal digits alone.
fn number(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// Returns a rule's name as it is written: of a long one the beginning, `~` and a digest.
pub(super) fn shortened(name: &str) -> Cow<'_, str> {
    const DIGEST_BYTES: usize = 8;
    if name.len() <= MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let most = MAX_NAME_BYTES - 1 - 2 * DIGEST_BYTES;
    let end = (0..=most).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    let digest = Sha256::digest(name)[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Cow::Owned(format!("{}~{digest}", &name[..end]))
}

/// Returns a name as one word.
fn escaped(name: &str) -> String {
    let mut word = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            word.push(char::from(byte));
        } else {
            let _ = write!(word, "%{byte:02X}");
        }
    }
    word
}

/// Returns the name that is escaped in a word.
fn unescaped(word: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut parts = word.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

// The reader's side: what others have written may be any bytes.

/// An entry as it was read. What no limiter writes is left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActivityEntry {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) rules: Vec<RuleLine>,
    pub(super) keys: Vec<KeyLine>,
}

impl ActivityEntry {
    /// Reads an entry. `None` for a text that no limiter writes.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_BYTES)?;
        let mut lines = text.lines();
        let mut words = words(lines.next()?);
        if words.next()? != VERSION {
            return None;
        }
        let id = words.next().filter(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let host = words.next()?;
        let (pid, name) = (words.next()?.parse().ok()?, unescaped(words.next()?)?);
        let (mut rules, mut keys) = (Vec::new(), Vec::new());
        for line in lines {
            // Keys name rules by their numbers, so a rule that cannot be read ends the entry.
            if line.starts_with("r ") {
                let Some(rule) = parse_rule(line) else { break };
                rules.push(rule);
            } else if let Some(key) = parse_key(line).filter(|key| key.rule < rules.len()) {
                keys.push(key);
            }
        }
        Some(Self { id: id.to_owned(), host: host.to_owned(), pid, name, rules, keys })
    }
}

/// The words of a line, none of them empty or very long.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |word: &&str| {
        !word.is_empty() && word.len() <= MAX_WORD_BYTES && word.bytes().all(|byte| byte.is_ascii_graphic())
    };
    line.split(' ').take_while(is_word)
}

fn parse_rule(line: &str) -> Option<RuleLine> {
    let mut words = words(line).skip(1);
    let (rule, millis) = (unescaped(words.next()?)?, number(words.next()?)?);
    let (mut total, mut added) = ([0; COUNTS], [0; COUNTS]);
    for word in words {
        let letter = word.chars().next()?;
        // That of a later version.
        let Some(place) = LETTERS.iter().position(|own| *own == letter) else { continue };
        (total[place], added[place]) = parse_count(&word[1..])?;
    }
    let (total, added) = (ActivityCounts::from_array(total), ActivityCounts::from_array(added));
    Some(RuleLine { rule, millis, total, added })
}

fn parse_key(line: &str) -> Option<KeyLine> {
    let mut words = words(line);
    let kind = match words.next()? {
        "d" => KeyKind::Denied,
        "a" => KeyKind::Allowed,
        _ => return None,
    };
    let rule = usize::try_from(number(words.next()?)?).ok()?;
    let (key, (total, added)) = (words.next()?.to_owned(), parse_count(words.next()?)?);
    let error = number(words.next()?)?.min(total);
    Some(KeyLine { kind, rule, key, total, added, error })
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use super::*;

    fn counts(denied: u64) -> ActivityCounts {
        ActivityCounts { denied, by_cache: denied / 2, ..ActivityCounts::default() }
    }

    fn rule(rule: &str, denied: u64) -> RuleLine {
        RuleLine { rule: rule.to_owned(), millis: 1_000, total: counts(denied), added: counts(denied.min(3)) }
    }

    fn key(rule: usize, key: &str, total: u64) -> KeyLine {
        KeyLine { kind: KeyKind::Denied, rule, key: key.to_owned(), total, added: 2, error: 1 }
    }

    const PLACE: &str = "0123456789abcdef web-1 12";

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let names = ["search", "-", "user:{user_id}", "with spaces % and\n\u{1b}[31m é", ""];
        let mut text = EntryText::new(PLACE, "the checkout", true);
        let rules: Vec<_> = names.iter().zip(5..).map(|(name, denied)| rule(name, denied)).collect();
        assert!((0..).zip(&rules).all(|(number, rule)| text.add_rule(rule) == Some(number)));
        let keys = [key(0, "user:@42", 340), KeyLine { kind: KeyKind::Allowed, added: 0, ..key(2, "+", 7) }];
        assert!(keys.iter().all(|key| text.add_key(key)));
        let text = text.finish().expect("it has rules");
        assert!(text.starts_with("1 0123456789abcdef web-1 12 the%20checkout\nr search 1000 d5+3 c2+1\n"), "{text}");
        assert!(text.contains("\nd 0 user:@42 340+2 1\na 2 + 7 1\n"), "{text}");
        let read = ActivityEntry::parse(text.as_bytes()).expect("an entry");
        let (id, host, name) = ("0123456789abcdef", "web-1", "the checkout");
        let rules_read = read.rules.iter().map(|rule| &rule.rule).collect::<Vec<_>>();
        // A word without letters ends a line.
        assert_eq!(rules_read, names[..4].iter().collect::<Vec<_>>());
        assert_eq!((&*read.id, &*read.host, read.pid, &*read.name), (id, host, 12, name));
        assert_eq!(read.rules[..4], rules[..4]);
        // Words and lines of later versions.
        let later = text.replacen(" 12 the%20checkout", " 12 the%20checkout more", 1).replace("d5+3", "d5+3 z9");
        let later = ActivityEntry::parse(format!("{later}x 1 2\n").as_bytes()).expect("an entry");
        assert_eq!((later.rules[0].clone(), later.name), (rules[0].clone(), read.name));
    }

    #[test]
    fn an_entry_has_at_most_4_kb_and_room_for_keys() {
        let mut text = EntryText::new(PLACE, "checkout", true);
        let added = (0..1_000).filter(|number| text.add_rule(&rule(&"é".repeat(5_000), *number)).is_some()).count();
        assert!((5..60).contains(&added), "{added}");
        let keys = (0..1_000).filter(|_| text.add_key(&key(0, &"k".repeat(200), 9))).count();
        assert!((9..20).contains(&keys), "{keys}");
        let text = text.finish().expect("it has rules");
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 300, "{}", text.len());
        let read = ActivityEntry::parse(text.as_bytes()).expect("an entry");
        assert_eq!((read.rules.len(), read.keys.len()), (added, keys));
        let name = &read.rules[0].rule;
        assert!(name.len() <= MAX_NAME_BYTES && name.starts_with(&"é".repeat(41)), "{name}");
        assert_ne!(shortened(&"é".repeat(5_000)), shortened(&"é".repeat(4_999)));
        assert_eq!(EntryText::new(PLACE, "checkout", false).finish(), None);
    }

    /// Each byte of an entry is replaced, each beginning is cut, and each line is repeated or left out.
    #[test]
    fn foreign_and_truncated_texts_are_left_out() {
        let mut text = EntryText::new(PLACE, "checkout", true);
        text.add_rule(&rule("search", 340)).expect("room");
        text.add_rule(&rule("b", u64::MAX)).expect("room");
        assert!(text.add_key(&key(1, "user:@42", u64::MAX)));
        let text = text.finish().expect("it has rules");
        let check = |bytes: &[u8]| {
            if let Some(entry) = ActivityEntry::parse(bytes) {
                assert!(entry.rules.len() <= 2 && entry.keys.len() <= 2);
                for rule in &entry.rules {
                    let (total, added) = (rule.total.as_array(), rule.added.as_array());
                    assert!(total.iter().zip(added).all(|(total, added)| added <= *total), "{rule:?}");
                }
                for key in &entry.keys {
                    assert!(key.added <= key.total && key.error <= key.total && key.rule < entry.rules.len());
                    assert!(key.key.bytes().all(|byte| byte.is_ascii_graphic()), "{key:?}");
                }
            }
        };
        for place in 0..text.len() {
            check(&text.as_bytes()[..place]);
            for byte in [0, b' ', b'\n', b'%', b'+', b'-', b'9', b'z', 0x1b, 0xff] {
                let mut changed = text.clone().into_bytes();
                changed[place] = byte;
                check(&changed);
                changed.insert(place, byte);
                check(&changed);
            }
        }
        for foreign in ["", "\n", "1", "2 0123456789abcdef web-1 12 checkout", "1 0123 web-1 12 checkout\n"] {
            assert_eq!(ActivityEntry::parse(foreign.as_bytes()), None, "{foreign}");
        }
        let long = format!("1 {PLACE} checkout\n{}", "r a 1 d1\n".repeat(1_000));
        assert_eq!(ActivityEntry::parse(long.as_bytes()), None);
    }
}
