//! The text of a set of rules, in TOML.

use std::fmt;
use std::str::{self, FromStr};

use toml::Spanned;
use toml::de::DeTable;

use crate::rule::TextPlace;
use crate::rule::format::FieldNames;
use crate::{Error, ErrorKind, RuleSet};

mod rule_reader;
mod plan_reader;
mod write;

use rule_reader::{OverrideReader, entries, flag, table};
use write::{TomlKey, is_bare};

/// The largest size of a text.
pub(super) const MAX_BYTES: usize = 16 << 20;
/// The largest size of the text of shared rules. Each process reads it whole.
const MAX_SHARED_BYTES: usize = 1 << 20;

const TOP_LEVEL: [&str; 5] = ["strict", "shared", "defaults", "plans", "rules"];

/// Parses TOML, as the [file of rules](crate::Builder::rules_file) has it. Needs the feature `rules`.
///
/// ```
/// # use limiter_core as rate_limited;
/// use rate_limited::{Limiter, RuleSet};
///
/// let rules: RuleSet = r#"
///     [defaults]
///     deadline = "50ms"
///     [rules.getId]
///     limit = "50/10s"
///     mode = "shadow"
/// "#
/// .parse()?;
/// Limiter::memory().set_rules(rules)?;
/// # Ok::<(), rate_limited::Error>(())
/// ```
///
/// The error is an [`ErrorKind::Config`](crate::ErrorKind::Config) with the line and the column of the mistake. A text
/// has at most 16 MB.
impl FromStr for RuleSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).map_err(|mistake| mistake.locate(text))
    }
}

impl RuleSet {
    /// Parses the text of shared rules. Settings of a single program are mistakes in it.
    ///
    /// # Errors
    /// As for a text of its own, and [`ErrorKind::Config`](crate::ErrorKind::Config) for `strict` or `shared`, and for
    /// more than 1 MB.
    pub(crate) fn from_shared_text(text: &str) -> Result<Self, Error> {
        let shared = || {
            if text.len() > MAX_SHARED_BYTES {
                let bytes = text.len();
                let problem = format!(
                    "the text of shared rules must have at most {MAX_SHARED_BYTES} bytes, got {bytes}: remove rules that \
                     are not used"
                );
                return Err(config_error(problem, 0));
            }
            let document = parse(text)?;
            for name in ["strict", "shared"] {
                if let Some(entry) = entries(document.get_ref()).into_iter().find(|entry| entry.name == name) {
                    let problem = format!(
                        "`{name}` must be left out of shared rules, got it: set it for each program, in its own file of \
                         rules or its builder"
                    );
                    return Err(config_error(problem, entry.name_at()));
                }
            }
            read_document(text, &document)
        };
        shared().map_err(|mistake| mistake.locate(text))
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// As for a text, and [`ErrorKind::Config`](crate::ErrorKind::Config) for bytes that are not UTF-8.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        match str::from_utf8(bytes) {
            Ok(text) => text.parse(),
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                let byte = rest.first().copied().unwrap_or_default();
                let problem = format!("the text must be UTF-8, got the byte {byte:#04x}: use UTF-8 in the editor");
                Err(config_error(problem, valid.len()).locate(str::from_utf8(valid).unwrap_or_default()))
            }
        }
    }
}

/// Writes the text in TOML that parses to the same set. Needs the feature `rules`.
///
/// Deadlines are written in whole milliseconds, rounded up. The text of a set that
/// [`build`](crate::Builder::build) rejects does not parse.
impl fmt::Display for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write::rule_set(self, f)
    }
}

fn read(text: &str) -> Result<RuleSet, Mistake> {
    if text.len() > MAX_BYTES {
        return Err(too_long());
    }
    read_document(text, &parse(text)?)
}

fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Mistake> {
    DeTable::parse(text).map_err(|error| {
        let (message, at) = (error.message(), error.span().map_or(0, |span| span.start));
        let problem = match in_quotes(text, at) {
            Some(header) => {
                format!("the text must be TOML, got a mistake in it, {message}: write the name in quotes: `{header}`")
            }
            None => format!("the text must be TOML, got a mistake in it, {message}: check this line"),
        };
        config_error(problem, at)
    })
}

fn read_document(text: &str, document: &Spanned<DeTable<'_>>) -> Result<RuleSet, Mistake> {
    let lines = TextLines::new(text);
    let mut overrides = OverrideReader::new(&lines);
    let mut set = RuleSet::new();
    for entry in entries(document.get_ref()) {
        match entry.name {
            "strict" => set.is_strict = flag(&entry)?,
            "shared" => set.is_shared = flag(&entry)?,
            "defaults" => set.defaults = rule_reader::defaults(table(&entry)?)?,
            "plans" => {
                for entry in entries(table(&entry)?) {
                    set.plans.insert(entry.name.to_owned(), plan_reader::plan(&entry, &lines)?);
                }
            }
            "rules" => {
                for entry in entries(table(&entry)?) {
                    set.rules.insert(entry.name.to_owned(), rule_reader::rule(&entry, &mut overrides)?);
                }
            }
            _ => {
                let kind = "one of `strict`, `shared`, `defaults`, `plans` and `rules`";
                return Err(entry.unknown(&FieldNames { kind, names: TOP_LEVEL.to_vec() }));
            }
        }
    }
    plan_reader::check_names(document.get_ref(), &set.plans)?;
    // Their mistakes were found above, with their positions.
    set.check().map_err(|error| Mistake::new(error.to_string(), 0))?;
    Ok(set)
}

/// Returns the mistake of a text above [`MAX_BYTES`].
pub(super) fn too_long() -> Mistake {
    config_error("the text must have at most 16 MB, got more: remove rules that are not used", 0)
}

// Headers of tables, such as `[rules.getId]`, whose names lack quotes.

/// Returns the header in the line of the byte `at` with its name in quotes. `None` unless the name needs them and has
/// none.
fn in_quotes(text: &str, at: usize) -> Option<String> {
    /// Longer names are no remedy that fits into a message.
    const MAX_BYTES: usize = 100;
    let (before, behind) = text.split_at_checked(at)?;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = behind.find('\n').map_or(text.len(), |newline| at + newline);
    let line = text.get(start..end)?.trim();
    let (open, close) = if line.starts_with("[[") { ("[[", "]]") } else { ("[", "]") };
    let (path, _) = line.strip_prefix(open)?.split_once(close)?;
    let (name, field) = match path.trim().strip_prefix("rules.")? {
        of_override if open == "[[" => (of_override.strip_suffix(".override")?, ".override"),
        name => (name, ""),
    };
    let needs_quotes = !name.bytes().all(|byte| is_bare(byte) || byte == b'.');
    let has_quotes = name.contains(['"', '\'']);
    let is_plain = !name.contains(char::is_control) && name.len() <= MAX_BYTES;
    (needs_quotes && !has_quotes && is_plain).then(|| format!("{open}rules.{}{field}{close}", TomlKey(name)))
}

// Mistakes in a text, with their positions.

/// A mistake in a text, at a byte of it.
#[derive(Debug)]
pub(crate) struct Mistake {
    problem: String,
    at: usize,
}

/// Creates the mistake that a setting at the byte `at` is.
fn config_error(problem: impl Into<String>, at: usize) -> Mistake {
    Mistake::new(problem.into(), at)
}

impl Mistake {
    fn new(problem: String, at: usize) -> Self {
        Self { problem, at }
    }

    /// Returns the error with line and column.
    pub(crate) fn locate(self, text: &str) -> Error {
        let Self { problem, at } = self;
        Error::new(ErrorKind::Config, TextLines::new(text).place(at).locate(&problem))
    }
}

/// A text with the starts of its lines.
struct TextLines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> TextLines<'t> {
    fn new(text: &'t str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { text, starts: [0].into_iter().chain(newlines.map(|(at, _)| at + 1)).collect() }
    }

    /// Returns the line and the column of a byte. Columns are characters, and bytes far to the right in a long line.
    fn place(&self, at: usize) -> TextPlace {
        /// Characters are counted up to here, so that many places in one line do not take long.
        const MAX_COUNTED_BYTES: usize = 1000;
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts[line.saturating_sub(1)];
        let before = &self.text.as_bytes()[start..at.clamp(start, self.text.len())];
        let (counted, rest) = before.split_at(before.len().min(MAX_COUNTED_BYTES));
        // The first bytes of characters.
        let columns = counted.iter().filter(|byte| (**byte & 0xC0) != 0x80).count() + rest.len();
        TextPlace::new(line, columns + 1)
    }
}

#[cfg(all(test, not(limiter_loom)))]
pub(crate) mod tests;
