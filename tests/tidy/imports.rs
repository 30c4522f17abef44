//! The import order of limiter-core: a module uses only modules above it in this list, and its own children.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::modules::{Module, conditions_of, is_for_tests, modules};

/// The modules in order, from the leaves to the interface. A module that is not named belongs to its parent.
const ORDER: &[&str] = &[
    "run",
    "error",
    "sync",
    "calendar",
    "limit",
    "key",
    "health",
    "background",
    "clock",
    "block",
    "until_done",
    "algorithm",
    "instances",
    "request",
    "receipt",
    "usage",
    "metrics",
    "concurrency",
    "overflow",
    "store::memory",
    "local",
    "store::slow",
    "store::redis::slot",
    "store::redis::naming",
    "store::redis::packed",
    "store::redis::notifier",
    "store::redis::busy_polling",
    "store::redis::resp",
    "store::redis::command_error",
    "store::redis::pipelined",
    "store::redis::health",
    "store::redis::known_slots",
    "store::redis::script",
    "store::redis::server",
    "store::redis::endpoint",
    "store::redis::connection",
    "store::redis::shared_rules",
    "store::redis::presence",
    "store::redis::worker",
    "store::redis::worker_handle",
    "store::redis",
    "store",
    "decision",
    "http",
    "activity",
    "collected",
    "convert",
    "observer",
    "failure_policy",
    "guard",
    "site",
    "rule",
    "serde",
    "limiter",
    "builder",
    "current",
    "permit",
    "private",
    "service",
    "",
];

/// The modules of limiter-core, and which of them each one uses.
struct Imports {
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    fn read() -> Self {
        let modules = modules("limiter-core", false);
        let names: BTreeSet<_> = modules.iter().map(|module| module.path.clone()).collect();
        let exports = modules.iter().map(|module| (module.path.clone(), exports(module))).collect();
        let uses = modules.iter().map(|module| {
            let mut paths = Paths::default();
            module.items.iter().for_each(|item| paths.visit_item(item));
            let used = paths.found.iter().filter_map(|path| resolve(path, &module.path, &names, &exports));
            (module.path.clone(), used.filter(|used| *used != module.path).collect())
        });
        Self { uses: uses.collect() }
    }
}

type Exports = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Names that a module re-exports, with the paths behind them.
fn exports(module: &Module) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for item in &module.items {
        if let Item::Use(item) = item
            && !matches!(item.vis, Visibility::Inherited)
        {
            for path in leaves(&item.tree) {
                if let Some(name) = path.last() {
                    found.insert(name.clone(), path);
                }
            }
        }
    }
    found
}

/// The paths of a file, tests left out.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !conditions_of(&module.attrs).iter().any(|condition| is_for_tests(condition)) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !conditions_of(&item.attrs).iter().any(|condition| is_for_tests(condition)) {
            self.found.extend(leaves(&item.tree));
        }
    }

    /// The path in `pub(super)` is no use of the parent.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

fn leaves(tree: &UseTree) -> Vec<Vec<String>> {
    match tree {
        UseTree::Path(path) => {
            let behind = leaves(&path.tree).into_iter();
            behind.map(|leaf| [vec![path.ident.to_string()], leaf].concat()).collect()
        }
        UseTree::Name(name) if name.ident == "self" => vec![Vec::new()],
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(name) => vec![vec![name.ident.to_string()]],
        UseTree::Glob(_) => vec![Vec::new()],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// The module that a path leads to, if it is one of this crate.
fn resolve(path: &[String], here: &str, names: &BTreeSet<String>, exports: &Exports) -> Option<String> {
    let mut segments: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => split(here),
        "super" => split(here),
        _ => return None,
    };
    for segment in path {
        match segment.as_str() {
            "crate" | "self" => {}
            "super" => drop(segments.pop()),
            _ => segments.push(segment.clone()),
        }
    }
    let known = (0..=segments.len()).rev().map(|len| segments[..len].join("::")).find(|name| names.contains(name))?;
    let behind = segments.get(split(&known).len());
    let export = behind.and_then(|name| exports.get(&known)?.get(name));
    match export {
        // A re-export counts as the module behind it.
        Some(target) => {
            let is_absolute = matches!(target.first().map(String::as_str), Some("crate" | "self" | "super"));
            let relative = [vec!["self".to_owned()], target.clone()].concat();
            let target = if is_absolute { target } else { &relative };
            resolve(target, &known, names, exports).or(Some(known))
        }
        None => Some(known),
    }
}

fn split(path: &str) -> Vec<String> {
    path.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn is_inside(module: &str, parent: &str) -> bool {
    module == parent || parent.is_empty() || module.strip_prefix(parent).is_some_and(|rest| rest.starts_with("::"))
}

/// The place of a module in the order: that of its longest named parent.
fn rank(module: &str) -> usize {
    let named = (0..).zip(ORDER).filter(|(_, name)| is_inside(module, name));
    named.max_by_key(|(_, name)| name.len()).map_or(0, |(rank, _)| rank)
}

/// The names of a room that modules outside of it use: each with the module that has it.
pub(crate) fn names_used_outside(room: &str) -> BTreeSet<(String, String)> {
    let modules = modules("limiter-core", false);
    let names: BTreeSet<_> = modules.iter().map(|module| module.path.clone()).collect();
    let exports: Exports = modules.iter().map(|module| (module.path.clone(), exports(module))).collect();
    let outside = modules.iter().filter(|module| !module.path.is_empty() && !is_inside(&module.path, room));
    let used = outside.flat_map(|module| {
        let mut paths = Paths::default();
        module.items.iter().for_each(|item| paths.visit_item(item));
        let resolved = paths.found.into_iter().filter_map(|path| {
            let of = resolve(&path, &module.path, &names, &exports)?;
            Some((of, path.last()?.clone()))
        });
        resolved.collect::<Vec<_>>()
    });
    used.filter(|(of, _)| is_inside(of, room)).collect()
}

#[test]
fn modules_import_only_what_is_above_them() {
    let imports = Imports::read();
    let mut failures = Vec::new();
    for (module, uses) in &imports.uses {
        for used in uses.iter().filter(|used| rank(used) > rank(module) && !used.is_empty()) {
            failures.push(format!("  {module} uses {used}"));
        }
    }
    assert!(failures.is_empty(), "imports against the order of ORDER:\n{}", failures.join("\n"));
}

#[test]
fn modules_import_each_other_in_no_circle() {
    let imports = Imports::read();
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        imports.uses.keys().map(|module| (module, reachable(module, &imports))).collect();
    let mut circles = BTreeSet::new();
    for module in imports.uses.keys().filter(|module| !module.is_empty()) {
        let circle: BTreeSet<_> = reach[module].iter().copied().filter(|other| reach[other].contains(module)).collect();
        let is_family = circle.iter().any(|top| circle.iter().all(|other| is_inside(other, top)));
        if circle.len() > 1 && !is_family {
            circles.insert(circle);
        }
    }
    let shown: Vec<_> = circles.iter().map(|circle| format!("  {circle:?}")).collect();
    assert!(circles.is_empty(), "files that import each other:\n{}", shown.join("\n"));
}

fn reachable<'a>(from: &str, imports: &'a Imports) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&'a String> = imports.uses[from].iter().collect();
    while let Some(module) = next.pop() {
        if !module.is_empty() && seen.insert(module) {
            next.extend(imports.uses.get(module).into_iter().flatten());
        }
    }
    seen
}
