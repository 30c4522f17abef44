//! Plain language: the form of the first doc line, and a list of words.
//!
//! The limits may only fall. A message names each line that breaks a rule.

use std::fmt::Write;
use std::path::Path;

use crate::sources::{files, read, root};

/// The limits of one directory or file.
struct Limits {
    place: &'static str,
    /// Percent of the first doc lines.
    max_headless: f64,
    /// Words of the list in 1 000 words of comments or of a document.
    max_listed: f64,
}

const LIMITS: [Limits; 19] = [
    limits("limiter-core", 0.5, 0.5),
    limits("limiter-macros", 0.5, 0.5),
    limits("limiter-syntax", 0.5, 0.5),
    limits("limiter-testkit", 0.5, 0.5),
    limits("limiter-tower", 0.5, 0.5),
    limits("limiter-bench", 0.5, 0.5),
    limits("limiter-chaos", 0.5, 0.5),
    limits("limiter-cli", 0.5, 0.5),
    limits("limiter-dashboard", 0.5, 0.5),
    limits("limiter-inspect", 0.5, 0.5),
    limits("limiter-server", 0.5, 0.5),
    limits("browser-tests", 0.5, 0.5),
    limits("examples", 0.5, 0.5),
    limits("tests", 0.5, 0.5),
    limits("docs", 0.0, 0.5),
    limits("README.md", 0.0, 0.5),
    limits("ARCHITECTURE.md", 0.0, 0.5),
    limits("CONTRIBUTING.md", 0.0, 0.5),
    limits("SECURITY.md", 0.0, 0.5),
];

/// A first doc line is a noun phrase or a third-person verb. It does not begin with one of these.
const HEADLESS: &[&str] = &[
    "what", "who", "whose", "whom", "whether", "when", "where", "how", "why", "of", "by", "as", "for", "with",
    "without", "in", "at", "on", "from", "to", "if", "that", "which", "so", "and", "or", "also", "not", "the same",
    "until", "after", "before", "while", "because", "but", "beyond", "like",
];

/// Components return, send and report. People are named by what they do.
const LISTED: &[&str] = &[
    "tell",
    "tells",
    "told",
    "telling",
    "say",
    "says",
    "said",
    "saying",
    "ask",
    "asks",
    "asked",
    "asking",
    "nobody",
    "somebody",
    "whoever",
    "everybody",
    "anybody",
    "stand-in",
    "give away",
    "gives away",
    "mended",
    "for good",
];

const fn limits(place: &'static str, max_headless: f64, max_listed: f64) -> Limits {
    Limits { place, max_headless, max_listed }
}

/// The prose of one file.
#[derive(Default)]
struct Prose {
    /// First lines of doc comments, with their line numbers.
    first_lines: Vec<(usize, String)>,
    /// All lines of comments, or of a document, with their line numbers.
    lines: Vec<(usize, String)>,
}

fn prose(file: &Path) -> Prose {
    let text = read(file);
    let mut prose = Prose::default();
    if file.extension().is_some_and(|extension| extension == "md") {
        prose.lines = (1..).zip(text.lines().map(str::to_owned)).collect();
        return prose;
    }
    let mut is_in_doc = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) {
            let doc = doc.trim();
            if !is_in_doc && !doc.is_empty() {
                prose.first_lines.push((number, doc.to_owned()));
                is_in_doc = true;
            }
            prose.lines.push((number, doc.to_owned()));
        } else {
            is_in_doc = false;
            let comment = line.strip_prefix("//").or_else(|| line.strip_prefix("--"));
            prose.lines.extend(comment.map(|comment| (number, comment.to_owned())));
        }
    }
    prose
}

fn is_headless(line: &str) -> bool {
    let line = line.to_lowercase();
    let begins = |start: &&&str| line.strip_prefix(**start).is_some_and(|rest| !rest.starts_with(is_word_letter));
    HEADLESS.iter().find(begins).is_some()
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The words of the list in a line. Redis's own ASK is in capitals and does not count.
fn listed_words(line: &str) -> Vec<&'static str> {
    let lower = line.replace("ASK", "").to_lowercase();
    let mut found = Vec::new();
    for word in LISTED {
        for (at, _) in lower.match_indices(word) {
            let (before, behind) = (lower[..at].chars().next_back(), lower[at + word.len()..].chars().next());
            if ![before, behind].into_iter().flatten().any(is_word_letter) {
                found.push(*word);
            }
        }
    }
    found
}

fn count_words(line: &str) -> usize {
    line.split(|letter: char| !letter.is_ascii_alphabetic() && letter != '\'').filter(|word| !word.is_empty()).count()
}

/// A share that is allowed, as a percentage or per thousand.
fn share(part: usize, of: usize, scale: u32) -> f64 {
    let ratio = |count: usize| f64::from(u32::try_from(count).expect("few lines"));
    f64::from(scale) * ratio(part) / ratio(of.max(1))
}

#[test]
fn first_doc_lines_are_noun_phrases_or_verbs() {
    let mut failures = String::new();
    for Limits { place, max_headless, .. } in LIMITS {
        let (mut all, mut headless) = (0, String::new());
        for file in files(place, &["rs", "lua", "md"]) {
            for (number, line) in prose(&file).first_lines {
                all += 1;
                if is_headless(&line) {
                    let _ = writeln!(headless, "  {}:{number}: {line}", shown(&file));
                }
            }
        }
        let share = share(headless.lines().count(), all, 100);
        if share > max_headless {
            let _ = write!(failures, "{place}: {share:.1} % of {all}, at most {max_headless} %\n{headless}");
        }
    }
    assert!(failures.is_empty(), "first doc lines that begin with a bare clause:\n{failures}");
}

#[test]
fn comments_and_documents_avoid_the_words_of_the_list() {
    let mut failures = String::new();
    for Limits { place, max_listed, .. } in LIMITS {
        let (mut words, mut listed) = (0, String::new());
        for file in files(place, &["rs", "lua", "md"]) {
            for (number, line) in prose(&file).lines {
                words += count_words(&line);
                for word in listed_words(&line) {
                    let _ = writeln!(listed, "  {}:{number}: {word}: {}", shown(&file), line.trim());
                }
            }
        }
        let share = share(listed.lines().count(), words, 1_000);
        if share > max_listed {
            let _ = write!(failures, "{place}: {share:.1} in 1 000 of {words}, at most {max_listed}\n{listed}");
        }
    }
    assert!(failures.is_empty(), "words to replace by plain ones:\n{failures}");
}

#[test]
fn the_rules_see_what_they_are_for() {
    for line in ["What it gives.", "The same for two.", "by", "Of one key."] {
        assert!(is_headless(line), "{line}");
    }
    for line in ["Whatever", "A queue of calls.", "Returns the limit.", "Bytes of a key.", "Towards zero"] {
        assert!(!is_headless(line), "{line}");
    }
    assert_eq!(
        listed_words("He told nobody; the stand-in is mended for good."),
        ["told", "nobody", "stand-in", "mended", "for good"].map(|word| word).to_vec().into_iter().collect::<Vec<_>>()
    );
    assert_eq!(listed_words("essays, task, ASK, asking_price"), [""; 0]);
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}
