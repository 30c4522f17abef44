//! The commands of a client: arrays of bulks, and lines of words as a person types them.
//!
//! An array is read in place: its arguments are places in the bytes that were received. Nothing is allocated for a length that
//! is announced, and a command that arrives in pieces is read on where it stopped.

use std::fmt;
use std::ops::Range;

/// The most bytes of a command, with its lengths and line ends.
pub(super) const MAX_COMMAND_BYTES: usize = 64 << 10;
/// The most arguments of a command, with its name.
const MAX_ARGUMENTS: usize = 1_024;
/// The most bytes of a line with a length, without its end.
const MAX_LENGTH_BYTES: usize = 32;

/// A reader of one command after the other.
#[derive(Debug, Default)]
pub(super) struct Parser {
    form: Form,
    /// The bytes of the command that were read.
    position: usize,
    /// The bytes of the command in which no end of the line was found.
    searched: usize,
    /// The places of the arguments in the command, or in `words`.
    places: Vec<Range<usize>>,
    /// The words of a line without their quotes.
    words: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// Its first byte was not received.
    #[default]
    Unknown,
    Line,
    /// An array with so many arguments to come. The next is a length.
    Array {
        left: usize,
    },
    /// An array with so many arguments to come. The next is a bulk of this length.
    Bulk {
        left: usize,
        length: usize,
    },
    /// All of it was read.
    Read {
        is_line: bool,
    },
}

/// The arguments of a command. The first is its name. Their bytes live for `'b`, and their list for `'p`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'p, 'b> {
    bytes: &'b [u8],
    places: &'p [Range<usize>],
}

/// The reason why the bytes of a client are no command. Its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    InvalidArrayLength,
    InvalidBulkLength,
    NoBulk {
        found: u8,
    },
    NoLineEnd,
    LongCommand,
    UnbalancedQuotes,
    /// A browser or another client of HTTP.
    Http,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArrayLength => f.write_str("invalid multibulk length"),
            Self::InvalidBulkLength => f.write_str("invalid bulk length"),
            Self::NoBulk { found } => write!(f, "expected '$', got '{}'", found.escape_ascii()),
            Self::NoLineEnd => f.write_str("expected CRLF after a bulk"),
            Self::LongCommand => write!(f, "a command must have at most {MAX_COMMAND_BYTES} bytes"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::Http => f.write_str("this port is for RESP, got a request of HTTP"),
        }
    }
}

impl Parser {
    /// Reads the command at the start of these bytes. Returns its length, or `None` if there is more to come: the next call gets
    /// the same bytes, and those that followed.
    ///
    /// # Errors
    /// The bytes are no command.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if let Form::Read { .. } = self.form {
            self.restart();
        }
        loop {
            match self.form {
                Form::Unknown => match bytes.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(line) = self.read_length(bytes, ProtocolError::InvalidArrayLength)? else {
                            return Ok(None);
                        };
                        let length = number(line).ok_or(ProtocolError::InvalidArrayLength)?;
                        let length = usize::try_from(length).unwrap_or(0);
                        if length > MAX_ARGUMENTS {
                            return Err(ProtocolError::InvalidArrayLength);
                        }
                        self.form = Form::Array { left: length };
                    }
                    Some(_) => self.form = Form::Line,
                },
                Form::Array { left: 0 } => {
                    self.form = Form::Read { is_line: false };
                    return Ok(Some(self.position));
                }
                Form::Array { left } => {
                    match bytes.get(self.position) {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(&found) => return Err(ProtocolError::NoBulk { found }),
                    }
                    let Some(line) = self.read_length(bytes, ProtocolError::InvalidBulkLength)? else {
                        return Ok(None);
                    };
                    let length = number(line).and_then(|length| usize::try_from(length).ok());
                    let length = length.filter(|length| *length <= MAX_COMMAND_BYTES);
                    let length = length.ok_or(ProtocolError::InvalidBulkLength)?;
                    if self.position + length + 2 > MAX_COMMAND_BYTES {
                        return Err(ProtocolError::LongCommand);
                    }
                    self.form = Form::Bulk { left, length };
                }
                Form::Bulk { left, length } => {
                    let end = self.position + length;
                    match bytes.get(end..end + 2) {
                        None => return Ok(None),
                        Some(b"\r\n") => {}
                        Some(_) => return Err(ProtocolError::NoLineEnd),
                    }
                    self.places.push(self.position..end);
                    self.position = end + 2;
                    self.form = Form::Array { left: left - 1 };
                }
                Form::Line => return self.read_line(bytes),
                // A command that was read begins anew above.
                Form::Read { .. } => return Ok(Some(self.position)),
            }
        }
    }

    /// Returns whether a command has begun and has not ended.
    pub(super) fn is_inside(&self) -> bool {
        !matches!(self.form, Form::Unknown | Form::Read { .. })
    }

    /// Returns the arguments of the array that was read from these bytes. `None` for a line.
    pub(super) fn array<'b>(&self, bytes: &'b [u8]) -> Option<Arguments<'_, 'b>> {
        (self.form == Form::Read { is_line: false }).then_some(Arguments { bytes, places: &self.places })
    }

    /// Returns the words of the line that was read.
    pub(super) fn line(&self) -> Arguments<'_, '_> {
        Arguments { bytes: &self.words, places: &self.places }
    }

    fn restart(&mut self) {
        (self.form, self.position, self.searched) = (Form::Unknown, 0, 0);
        self.places.clear();
        self.words.clear();
    }

    /// Reads the line at the position, with a length after its first byte. `None` if its end is to come.
    fn read_length<'b>(&mut self, bytes: &'b [u8], error: ProtocolError) -> Result<Option<&'b [u8]>, ProtocolError> {
        let line = &bytes[self.position + 1..];
        let line = &line[..line.len().min(MAX_LENGTH_BYTES + 2)];
        match line.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.position += 1 + end + 1;
                line[..end].strip_suffix(b"\r").map(Some).ok_or(error)
            }
            None if line.len() == MAX_LENGTH_BYTES + 2 => Err(error),
            None => Ok(None),
        }
    }

    fn read_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let searched = &bytes[..bytes.len().min(MAX_COMMAND_BYTES)];
        let Some(end) = searched[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = searched.len();
            return if searched.len() == MAX_COMMAND_BYTES { Err(ProtocolError::LongCommand) } else { Ok(None) };
        };
        let end = self.searched + end;
        let line = searched[..end].strip_suffix(b"\r").unwrap_or(&searched[..end]);
        self.split_words(line)?;
        let name = self.line().get(0).unwrap_or_default();
        // A browser sends such lines to an address of a page. No command has these names.
        if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:") {
            return Err(ProtocolError::Http);
        }
        (self.position, self.form) = (end + 1, Form::Read { is_line: true });
        Ok(Some(end + 1))
    }

    /// Splits a line at spaces. Words may have quotes, and escapes between double ones.
    fn split_words(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            let Some(&first) = rest.first() else { return Ok(()) };
            if self.places.len() == MAX_ARGUMENTS {
                return Err(ProtocolError::LongCommand);
            }
            let start = self.words.len();
            rest = match first {
                b'"' | b'\'' => self.read_quoted(&rest[1..], first)?,
                _ => {
                    let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                    self.words.extend_from_slice(&rest[..length]);
                    &rest[length..]
                }
            };
            self.places.push(start..self.words.len());
        }
    }

    /// Reads a word up to its closing quote. Returns the bytes after it.
    fn read_quoted<'l>(&mut self, line: &'l [u8], quote: u8) -> Result<&'l [u8], ProtocolError> {
        let mut rest = line;
        loop {
            let (&byte, after) = rest.split_first().ok_or(ProtocolError::UnbalancedQuotes)?;
            rest = after;
            let byte = match byte {
                byte if byte == quote => {
                    let is_end = after.first().is_none_or(u8::is_ascii_whitespace);
                    return if is_end { Ok(after) } else { Err(ProtocolError::UnbalancedQuotes) };
                }
                b'\\' if quote == b'"' => {
                    let (byte, length) = unescape(after).ok_or(ProtocolError::UnbalancedQuotes)?;
                    rest = &after[length..];
                    byte
                }
                b'\\' if after.first() == Some(&b'\'') => {
                    rest = &after[1..];
                    b'\''
                }
                byte => byte,
            };
            self.words.push(byte);
        }
    }
}

impl<'p, 'b> Arguments<'p, 'b> {
    /// The number of arguments, with the name.
    pub(super) fn len(self) -> usize {
        self.places.len()
    }

    /// The argument at this place. The name is at 0.
    pub(super) fn get(self, index: usize) -> Option<&'b [u8]> {
        self.places.get(index).and_then(|place| self.bytes.get(place.clone()))
    }

    /// The arguments from this place on.
    pub(super) fn after(self, index: usize) -> impl Iterator<Item = &'b [u8]> + use<'p, 'b> {
        let places = self.places.get(index..).unwrap_or_default();
        places.iter().filter_map(move |place| self.bytes.get(place.clone()))
    }
}

/// Returns the byte of an escape after its backslash, and the length of the escape.
fn unescape(bytes: &[u8]) -> Option<(u8, usize)> {
    let digit = |index: usize| bytes.get(index).and_then(|byte| char::from(*byte).to_digit(16));
    if let (Some(b'x'), Some(high), Some(low)) = (bytes.first(), digit(1), digit(2)) {
        return Some((u8::try_from(high * 16 + low).ok()?, 3));
    }
    let byte = match bytes.first()? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        byte => *byte,
    };
    Some((byte, 1))
}

/// Reads a whole number as Redis does: digits without a plus or a leading zero.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
            // Below zero, where the least number is too.
            let add = |value: i64, digit: &u8| value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'));
            let value = digits.iter().try_fold(0, add)?;
            if digits.len() < text.len() { Some(value) } else { value.checked_neg() }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use limiter_testkit::Random;

    use super::*;

    /// Reads all commands of these bytes, which arrive in pieces of these lengths.
    fn commands(bytes: &[u8], mut piece: impl FnMut() -> usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let (mut parser, mut all, mut start, mut received) = (Parser::default(), Vec::new(), 0, 0);
        loop {
            match parser.read(&bytes[start..received])? {
                Some(length) => {
                    let read = &bytes[start..start + length];
                    let arguments = parser.array(read).unwrap_or_else(|| parser.line());
                    all.push(arguments.after(0).map(<[u8]>::to_vec).collect());
                    start += length;
                    assert!(!parser.is_inside());
                }
                None if received == bytes.len() => return Ok(all),
                None => received = bytes.len().min(received + piece()),
            }
        }
    }

    fn texts(commands: &[Vec<Vec<u8>>]) -> Vec<String> {
        let text =
            |command: &Vec<Vec<u8>>| command.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
        commands.iter().map(|command| text(command).join("|")).collect()
    }

    const SESSION: &[u8] = b"*2\r\n$4\r\nPING\r\n$0\r\n\r\nPING\r\n\r\n*0\r\n*-1\r\n*3\r\n$8\r\nRL.CHECK\r\n$6\r\nsearch\r\n$4\r\na\r\nb\r\n  ECHO  \"a \\x41\\n\\\"\" 'it\\'s' \n*1\r\n$4\r\nQUIT\r\n";
    const READ: [&str; 8] = ["PING|", "PING", "", "", "", "RL.CHECK|search|a\\r\\nb", "ECHO|a A\\n\\\"|it\\'s", "QUIT"];

    #[test]
    fn commands_are_the_same_wherever_their_bytes_are_split() {
        assert_eq!(texts(&commands(SESSION, || SESSION.len()).expect("valid")), READ);
        for piece in 1..SESSION.len() {
            assert_eq!(texts(&commands(SESSION, || piece).expect("valid")), READ, "{piece}");
        }
        let mut random = Random::new(42);
        for _ in 0..1_000 {
            let piece = || usize::try_from(random.between(1, 20)).expect("small");
            assert_eq!(texts(&commands(SESSION, piece).expect("valid")), READ);
        }
    }

    #[test]
    fn bytes_that_are_no_command_have_a_reason() {
        let cases: [(&[u8], ProtocolError); 17] = [
            (b"*x\r\n", ProtocolError::InvalidArrayLength),
            (b"*1\n", ProtocolError::InvalidArrayLength),
            (b"*+1\r\n", ProtocolError::InvalidArrayLength),
            (b"*1025\r\n", ProtocolError::InvalidArrayLength),
            (b"*99999999999999999999\r\n", ProtocolError::InvalidArrayLength),
            (b"*1111111111111111111111111111111111", ProtocolError::InvalidArrayLength),
            (b"*1\r\nPING\r\n", ProtocolError::NoBulk { found: b'P' }),
            (b"*1\r\n:1\r\n", ProtocolError::NoBulk { found: b':' }),
            (b"*1\r\n$-1\r\n", ProtocolError::InvalidBulkLength),
            (b"*1\r\n$\r\n", ProtocolError::InvalidBulkLength),
            (b"*1\r\n$536870912\r\n", ProtocolError::InvalidBulkLength),
            (b"*1\r\n$65537\r\n", ProtocolError::InvalidBulkLength),
            (b"*1\r\n$65530\r\n", ProtocolError::LongCommand),
            (b"*1\r\n$4\r\nPINGxx", ProtocolError::NoLineEnd),
            (b"ECHO \"a\r\n", ProtocolError::UnbalancedQuotes),
            (b"ECHO \"a\"b\r\n", ProtocolError::UnbalancedQuotes),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", ProtocolError::Http),
        ];
        for (bytes, error) in cases {
            for piece in [1, bytes.len()] {
                assert_eq!(commands(bytes, || piece), Err(error), "{}", bytes.escape_ascii());
            }
            assert!(!error.to_string().contains(['\r', '\n']));
        }
    }

    #[test]
    fn a_command_has_a_bound_as_a_whole() {
        let bulk = [b"$30000\r\n".as_slice(), &[b'x'; 30_000], b"\r\n"].concat();
        let two = [b"*2\r\n".as_slice(), &bulk, &bulk].concat();
        assert_eq!(commands(&two, || 10_000).expect("within the bound")[0].len(), 2);
        let three = [b"*3\r\n".as_slice(), &bulk, &bulk, &bulk].concat();
        assert_eq!(commands(&three, || 10_000), Err(ProtocolError::LongCommand));
        let line = [b'x'; MAX_COMMAND_BYTES];
        assert_eq!(commands(&line, || 10_000), Err(ProtocolError::LongCommand));
        let words = [b"x ".repeat(MAX_ARGUMENTS + 1), b"\n".to_vec()].concat();
        assert_eq!(commands(&words, || 10_000), Err(ProtocolError::LongCommand));
    }

    #[test]
    fn no_bytes_make_the_parser_fail() {
        const PIECES: [&[u8]; 16] = [
            b"*",
            b"$",
            b"\r\n",
            b"\n",
            b"\r",
            b"1",
            b"2",
            b"-",
            b"PING",
            b"\"",
            b"'",
            b"\\",
            b" ",
            b"\0",
            b"\xff",
            b"$4\r\nPING\r\n",
        ];
        let mut random = Random::new(7);
        for _ in 0..20_000 {
            let length = random.between(1, 12);
            let picks = (0..length).map(|_| PIECES[usize::try_from(random.below(16)).expect("small")]);
            let bytes: Vec<u8> = picks.flatten().copied().collect();
            let whole = commands(&bytes, || bytes.len());
            assert_eq!(whole, commands(&bytes, || 1), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_number_is_written_as_redis_writes_it() {
        for (text, value) in [("0", 0), ("7", 7), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(number(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "-0", "+1", "01", "1.5", " 1", "1 ", "9223372036854775808", "x"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
