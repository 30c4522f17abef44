//! The sizes of limiter-core, which a change may only lower. One that raises a number states here why.
//!
//! A file has one idea, as a rule of 150 to 450 lines. A directory is a room: few of its names are used outside. Lines
//! of tests do not count.

use syn::Item;

use crate::imports::names_used_outside;
use crate::modules::{Module, conditions_of, is_for_tests, modules};
use crate::sources::read;

/// Structs, enums and unions for each 10 000 lines of code.
const TYPES_PER_10000_LINES: usize = 180;
/// The lines of the longest file, with comments.
const LONGEST_FILE: usize = 548;
/// Functions of more than 60 lines.
const LONG_FUNCTIONS: usize = 2;
/// The names of each room that are used outside of it.
const NAMES: [(&str, usize); 8] = [
    ("store::redis", 19), // with an instance, its inventory and the options of its heartbeats; the source of activity, and the stream
    ("store::memory", 4),
    ("rule", 62),   // the plan of a customer, which callers bring
    ("limiter", 8), // the open calls of a layer end when it drops them
    ("local", 16),
    ("metrics", 9),
    ("key", 7),
    ("decision", 13), // with the state of one limit, and with a receipt, its terms and its uses, for settlements
];

/// The lines of a module without those of its inline tests.
fn production(module: &Module) -> Vec<String> {
    let text = read(&module.file);
    let mut lines = Vec::new();
    let (mut is_test, mut conditions) = (false, Vec::new());
    for line in text.lines() {
        if is_test {
            is_test = line != "}";
        } else if line.starts_with("#[cfg(") {
            conditions.push(line.to_owned());
        } else if conditions.iter().any(|condition| is_for_tests(condition)) && line.contains("mod ") {
            conditions.clear();
            is_test = line.ends_with('{');
        } else {
            lines.append(&mut conditions);
            lines.push(line.to_owned());
        }
    }
    lines
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

fn types_of(items: &[Item]) -> usize {
    let count = |item: &Item| match item {
        Item::Struct(_) | Item::Enum(_) | Item::Union(_) => 1,
        Item::Mod(module) if !conditions_of(&module.attrs).iter().any(|condition| is_for_tests(condition)) => {
            module.content.as_ref().map_or(0, |(_, items)| types_of(items))
        }
        _ => 0,
    };
    items.iter().map(count).sum()
}

/// The functions of more than 60 lines. The sources are formatted, so each ends at a brace of its own indentation.
fn long_functions(lines: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let declaration = line.trim_start();
        let indentation = &line[..line.len() - declaration.len()];
        let is_function =
            declaration.split(['(', '<']).next().is_some_and(|head| head.split(' ').any(|word| word == "fn"));
        if !is_function || !is_code(line) || line.ends_with(';') {
            continue;
        }
        let end = format!("{indentation}}}");
        let length = lines[index..].iter().position(|line| *line == end).map_or(0, |last| last + 1);
        if length > 60 {
            found.push(format!("{} ({length} lines)", declaration.trim_end_matches('{')));
        }
    }
    found
}

/// Returns what is to be done about a number that is not the one stated here.
fn change(what: &str, found: usize, stated: usize) -> Option<String> {
    match found {
        _ if found > stated => {
            Some(format!("{what}: {found}, above {stated}: lower it, or raise the number here with a line of reason"))
        }
        _ if found < stated => Some(format!("{what}: {found}: lower the {stated} here, so that it stays")),
        _ => None,
    }
}

#[test]
fn the_house_does_not_grow_without_a_reason() {
    let modules = modules("limiter-core", false);
    let sources: Vec<_> = modules.iter().map(production).collect();
    let code: usize = sources.iter().map(|lines| lines.iter().filter(|line| is_code(line)).count()).sum();
    let types: usize = modules.iter().map(|module| types_of(&module.items)).sum();
    let longest = sources.iter().map(Vec::len).max().unwrap_or(0);
    let long: Vec<_> = sources.iter().flat_map(|lines| long_functions(lines)).collect();
    let changes = [
        change("types for each 10 000 lines of code", types * 10_000 / code, TYPES_PER_10000_LINES),
        change("lines of the longest file", longest, LONGEST_FILE),
        change(&format!("functions above 60 lines {long:#?}"), long.len(), LONG_FUNCTIONS),
    ];
    let changes: Vec<_> = changes.into_iter().flatten().collect();
    assert!(changes.is_empty(), "{}", changes.join("\n"));
}

#[test]
fn few_names_of_a_room_are_used_outside_of_it() {
    let change = |(room, stated)| {
        let names = names_used_outside(room);
        change(&format!("names of `{room}` that are used outside {names:?}"), names.len(), stated)
    };
    let changes: Vec<_> = NAMES.into_iter().filter_map(change).collect();
    assert!(changes.is_empty(), "{}", changes.join("\n"));
}
