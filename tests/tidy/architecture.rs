//! The page about the architecture and the pages of decisions: their sizes, and the paths, tests and links that they name.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{files, read, root};

/// The most lines and words of the page: what a person reads in twenty minutes.
const MAX_LINES: usize = 350;
const MAX_WORDS: usize = 4_500;
/// The most rows of its glossary.
const MAX_TERMS: usize = 25;

const PAGE: &str = "ARCHITECTURE.md";

/// The places of files that the pages may name.
const PLACES: [&str; 15] = [
    "browser-tests",
    "docs",
    "examples",
    "limiter-bench",
    "limiter-chaos",
    "limiter-cli",
    "limiter-core",
    "limiter-dashboard",
    "limiter-inspect",
    "limiter-macros",
    "limiter-server",
    "limiter-syntax",
    "limiter-testkit",
    "limiter-tower",
    "tests",
];

/// The pages, with their names under the root and their texts.
fn pages() -> Vec<(String, String)> {
    let mut pages = vec![root().join(PAGE)];
    pages.extend(files("docs/decisions", &["md"]));
    pages.iter().map(|page| (shown(page), read(page))).collect()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

/// The text between backticks of each line outside of code blocks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    let prose = text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code && !line.starts_with("```")
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The rows of the table below a heading, without its head.
fn rows<'t>(text: &'t str, heading: &str) -> Vec<&'t str> {
    let section = text.split(&format!("\n## {heading}\n")).nth(1).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or(section);
    section.lines().filter(|line| line.starts_with('|')).skip(2).collect()
}

/// The names of all functions of the workspace.
fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in PLACES.iter().filter(|place| **place != "docs").flat_map(|place| files(place, &["rs"])) {
        for line in read(&file).lines().filter(|line| !line.trim_start().starts_with("//")) {
            let name = line.split("fn ").nth(1).map(|rest| rest.split(|letter: char| !is_of_name(letter)));
            names.extend(name.and_then(|mut parts| parts.next().map(str::to_owned)));
        }
    }
    names
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[test]
fn the_page_is_read_in_twenty_minutes() {
    let text = read(&root().join(PAGE));
    let (lines, words, terms) = (text.lines().count(), text.split_whitespace().count(), rows(&text, "Glossary").len());
    assert!(lines <= MAX_LINES, "{lines} lines, at most {MAX_LINES}: move a reason to docs/decisions");
    assert!(words <= MAX_WORDS, "{words} words, at most {MAX_WORDS}: move a reason to docs/decisions");
    assert!(terms <= MAX_TERMS, "{terms} terms, at most {MAX_TERMS}: a name of a file or a type is explained there");
}

#[test]
fn each_invariant_names_tests_that_exist() {
    let (text, functions) = (read(&root().join(PAGE)), functions());
    let mut failures = Vec::new();
    for row in rows(&text, "Invariants") {
        let tests = row.split(" | ").nth(2).unwrap_or_default();
        let tests: Vec<_> = quoted(tests).collect();
        if tests.is_empty() {
            failures.push(format!("  no test: {row}"));
        }
        let lost = tests.iter().filter(|test| !functions.contains(**test));
        failures.extend(lost.map(|test| format!("  no such test: {test}")));
    }
    assert!(failures.is_empty(), "{PAGE}, invariants:\n{}", failures.join("\n"));
}

#[test]
fn each_signature_is_that_of_a_function() {
    let (text, functions) = (read(&root().join(PAGE)), functions());
    let signatures = text.lines().filter_map(|line| line.split_once("fn ").filter(|(before, _)| is_start(before)));
    let names = signatures.map(|(_, rest)| rest.split(['(', '<']).next().unwrap_or(rest));
    let lost: Vec<_> = names.filter(|name| !functions.contains(name.rsplit("::").next().unwrap_or(name))).collect();
    assert!(lost.is_empty(), "{PAGE} has signatures of functions that do not exist: {lost:?}");
}

fn is_start(before: &str) -> bool {
    before.is_empty() || before == "async "
}

#[test]
fn each_path_of_the_pages_exists() {
    let known: Vec<_> = PLACES.iter().flat_map(|place| files(place, &["rs", "lua", "md", "toml"])).collect();
    let known: Vec<_> = known.iter().map(|file| format!("/{}", shown(file))).collect();
    let mut lost = Vec::new();
    for (page, text) in pages() {
        for path in
            quoted(&text).filter(|quoted| quoted.chars().all(|letter| is_of_name(letter) || "/.-".contains(letter)))
        {
            let is_there = if path.ends_with('/') {
                let directory = format!("/{path}");
                known.iter().any(|file| file.contains(&directory)) || root().join(path).is_dir()
            } else if path.ends_with(".rs") || path.ends_with(".lua") {
                let end = format!("/{path}");
                known.iter().any(|file| file.ends_with(&end)) || root().join(path).is_file()
            } else {
                continue;
            };
            if !is_there {
                lost.push(format!("  {page}: {path}"));
            }
        }
    }
    assert!(lost.is_empty(), "paths that are not in the repository:\n{}", lost.join("\n"));
}

#[test]
fn each_link_of_the_pages_leads_to_a_page() {
    let mut lost = Vec::new();
    for (page, text) in pages() {
        let directory = root().join(&page);
        let directory = directory.parent().expect("a file");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if !link.contains("://") && !directory.join(link).exists() {
                lost.push(format!("  {page}: {link}"));
            }
        }
    }
    assert!(lost.is_empty(), "links to nothing:\n{}", lost.join("\n"));
}

#[test]
fn each_decision_is_in_the_index_with_its_title() {
    let index = read(&root().join("docs/decisions/README.md"));
    let mut lost = Vec::new();
    for (page, text) in
        pages().into_iter().filter(|(page, _)| page.starts_with("docs/decisions/") && !page.ends_with("README.md"))
    {
        let name = page.rsplit('/').next().unwrap_or(&page);
        let title = text.lines().next().unwrap_or_default();
        let (number, title) = title.trim_start_matches("# ").split_once(". ").unwrap_or_default();
        let line = format!("- [{number}]({name}) {title}");
        if !index.lines().any(|other| other == line) {
            lost.push(format!("  {line}"));
        }
    }
    assert!(lost.is_empty(), "lines that docs/decisions/README.md lacks:\n{}", lost.join("\n"));
}
