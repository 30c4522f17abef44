//! One grammar of limits: the run time and the attribute have the same units, and name them in the same words.

use crate::sources::{read, root};

/// The constants that both parsers have.
const SHARED: [&str; 2] = ["UNITS", "UNIT_LIST"];

/// Returns the shared constants of a file, as written.
fn constants(file: &str) -> [String; 2] {
    let text = read(&root().join(file));
    SHARED.map(|name| {
        let start = text.find(&format!("const {name}:")).unwrap_or_else(|| panic!("{file} has no `{name}`"));
        let (constant, _) = text[start..].split_once(";\n").unwrap_or_else(|| panic!("`{name}` of {file} has no end"));
        constant.to_owned()
    })
}

#[test]
fn both_parsers_of_limits_have_the_same_units() {
    assert_eq!(constants("limiter-core/src/limit/parse.rs"), constants("limiter-macros/src/duration.rs"));
}
