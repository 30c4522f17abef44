//! The tree of a crate's modules, as its `mod` lines give it.

use std::path::{Path, PathBuf};

use syn::{Attribute, Item, Meta};

use crate::sources::{read, root};

/// One module with a file of its own. Modules inside a file belong to it.
pub(crate) struct Module {
    /// `store::memory`; empty for the root.
    pub(crate) path: String,
    pub(crate) file: PathBuf,
    pub(crate) items: Vec<Item>,
    /// The conditions under which it is compiled.
    pub(crate) conditions: Vec<String>,
}

/// The modules of a crate, tests left out or not.
pub(crate) fn modules(package: &str, with_tests: bool) -> Vec<Module> {
    let source = root().join(package).join("src");
    let mut found = Vec::new();
    let library = source.join("lib.rs");
    let root = if library.exists() { library } else { source.join("main.rs") };
    walk(&root, &source, String::new(), Vec::new(), with_tests, &mut found);
    found
}

fn walk(
    file: &Path,
    directory: &Path,
    path: String,
    conditions: Vec<String>,
    with_tests: bool,
    found: &mut Vec<Module>,
) {
    let text = read(file);
    let items = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
    for item in &items {
        let Item::Mod(module) = item else { continue };
        let own = conditions_of(&module.attrs);
        if module.content.is_some() || (!with_tests && own.iter().any(|condition| is_for_tests(condition))) {
            continue;
        }
        let name = module.ident.to_string();
        let (file, inside) = (file_of(directory, &name), directory.join(&name));
        let path = if path.is_empty() { name } else { format!("{path}::{name}") };
        walk(&file, &inside, path, [&conditions[..], &own].concat(), with_tests, found);
    }
    found.push(Module { path, file: file.to_owned(), items, conditions });
}

fn file_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(name).with_extension("rs")
}

/// The predicates of `#[cfg(…)]`, as they are written.
pub(crate) fn conditions_of(attributes: &[Attribute]) -> Vec<String> {
    let conditions = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => Some(list.tokens.to_string()),
        _ => None,
    });
    conditions.collect()
}

pub(crate) fn is_for_tests(condition: &str) -> bool {
    condition.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == "test")
        && !condition.contains("any")
}
