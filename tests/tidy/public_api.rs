//! The public API of the packages that are published, an item a line, as `public_api.txt` has it.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p rate-limited-tests --all-features --test tidy` rewrites that file. A line that goes
//! or changes breaks users: docs/versioning.md states which version a release then gets.
//!
//! The sources are read, and not what the compiler makes of them. So a reader sees what is written: a type is shown
//! by its name, whether a derive or an `impl` implements a trait makes no difference, and auto traits are missing.

use std::collections::BTreeSet;
use std::env;
use std::fs;

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Fields, GenericArgument, Generics, ImplItem, Item, ItemImpl, ItemMacro, PathArguments, Token,
    TraitItem, Type, UseTree, Visibility,
};

use crate::modules::{Module, conditions_of, is_for_tests, modules};
use crate::sources::{read, root};

/// The packages, each with the directory of its sources.
const PACKAGES: [(&str, &str); 7] = [
    ("rate-limited", "."),
    ("limiter-core", "limiter-core"),
    ("limiter-dashboard", "limiter-dashboard"),
    ("limiter-macros", "limiter-macros"),
    ("limiter-server", "limiter-server"),
    ("limiter-syntax", "limiter-syntax"),
    ("limiter-tower", "limiter-tower"),
];

const SNAPSHOT: &str = "tests/tidy/public_api.txt";

#[test]
fn the_public_api_is_the_committed_one() {
    let found = PACKAGES.map(|(name, directory)| section(name, directory)).join("\n");
    let file = root().join(SNAPSHOT);
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        return fs::write(&file, found).expect("the snapshot is written");
    }
    let committed = read(&file);
    let lines = |text: &str| -> BTreeSet<String> {
        let mut package = String::new();
        let line = |line: &str| {
            package = line.strip_prefix("# ").map_or_else(|| package.clone(), str::to_owned);
            format!("{package}: {line}")
        };
        text.lines().map(line).collect()
    };
    let (new, old) = (lines(&found), lines(&committed));
    let shown =
        |sign: &str, lines: Vec<&String>| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    let gone = shown("-", old.difference(&new).collect());
    let added = shown("+", new.difference(&old).collect());
    assert!(
        found == committed,
        "the public API differs from {SNAPSHOT}:\n{gone}{added}A line with - breaks users, see docs/versioning.md. If \
         the change is meant, add a line to CHANGELOG.md, and rewrite the file with UPDATE_SNAPSHOTS=1"
    );
}

fn section(name: &str, directory: &str) -> String {
    let mut lines = features(directory);
    let modules = modules(directory, true);
    lines.append(&mut arguments_of_the_attribute(&modules));
    Package::of(&modules).print(&mut lines);
    lines.iter().fold(format!("# {name}\n"), |text, line| format!("{text}{line}\n"))
}

/// The features of a manifest.
fn features(directory: &str) -> BTreeSet<String> {
    let manifest = read(&root().join(directory).join("Cargo.toml"));
    let lines =
        manifest.lines().skip_while(|line| *line != "[features]").skip(1).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| format!("feature {name}")).collect()
}

/// The arguments of the attribute, from the list that it reads them by.
fn arguments_of_the_attribute(modules: &[Module]) -> BTreeSet<String> {
    let constants = modules.iter().filter(|module| module.path == "names").flat_map(|module| &module.items);
    let list = constants.filter_map(|item| match item {
        Item::Const(constant) if constant.ident == "NAMES" => Some(&*constant.expr),
        _ => None,
    });
    let names = list.flat_map(|list| match list {
        Expr::Array(array) => array.elems.iter().map(name_of_pair).collect::<Vec<_>>(),
        other => panic!("NAMES is no array: {}", text(other)),
    });
    names.map(|name| format!("argument {name} of #[rate_limited]")).collect()
}

fn name_of_pair(pair: &Expr) -> String {
    let Expr::Tuple(pair) = pair else { panic!("no pair: {}", text(pair)) };
    text(&pair.elems[0]).trim_matches('"').to_owned()
}

/// An item, with the path of its module and the conditions of that module.
struct Entry<'a> {
    path: String,
    conditions: Vec<String>,
    item: &'a Item,
}

/// The items of modules, and of the modules inside their files.
fn entries<'a>(path: &str, conditions: &[String], items: &'a [Item]) -> Vec<Entry<'a>> {
    let mut found = Vec::new();
    for item in items {
        found.push(Entry { path: path.to_owned(), conditions: conditions.to_vec(), item });
        let Item::Mod(module) = item else { continue };
        let conditions = [conditions, &conditions_of(&module.attrs)].concat();
        if let Some((_, items)) = &module.content
            && !has_tests(&conditions)
        {
            found.append(&mut entries(&format!("{path}::{}", module.ident), &conditions, items));
        }
    }
    found
}

/// Returns whether the conditions are those of tests. The feature `test-util` is for users.
fn has_tests(conditions: &[String]) -> bool {
    conditions.iter().any(|condition| is_for_tests(&condition.replace("test-util", "")))
}

/// The items of a package, and the names among them that are public.
struct Package<'a> {
    entries: Vec<Entry<'a>>,
    public: BTreeSet<String>,
    /// Types and traits that are defined here and are not public.
    private: BTreeSet<String>,
    /// Public modules that the documentation does not show.
    hidden: BTreeSet<String>,
    lines: BTreeSet<String>,
}

impl<'a> Package<'a> {
    fn of(modules: &'a [Module]) -> Self {
        let library = modules.iter().find(|module| module.path.is_empty()).expect("the library");
        let modules = modules.iter().filter(|module| !has_tests(&module.conditions));
        let entries = modules.flat_map(|module| entries(&module.path, &module.conditions, &module.items));
        let mut package = Self {
            entries: entries.collect(),
            public: BTreeSet::new(),
            private: BTreeSet::new(),
            hidden: BTreeSet::new(),
            lines: BTreeSet::new(),
        };
        for item in &library.items {
            match item {
                Item::Use(import) if is_public(&import.vis, &import.attrs) => {
                    package.add_import(&import.tree, &mut Vec::new(), &conditions_of(&import.attrs));
                }
                Item::Mod(module) if is_public(&module.vis, &module.attrs) => {
                    package.add_module(&module.ident.to_string(), &conditions_of(&module.attrs));
                }
                Item::Mod(module) if matches!(module.vis, Visibility::Public(_)) => {
                    package.hidden.insert(module.ident.to_string());
                }
                Item::Fn(function) if is_public(&function.vis, &function.attrs) => {
                    package.lines.insert(format!("attribute macro {}", function.sig.ident));
                }
                _ => {}
            }
        }
        package.find_private();
        package
    }

    /// Adds what a `pub use` of the library names: an item of this package, or of another one.
    fn add_import(&mut self, tree: &UseTree, path: &mut Vec<String>, conditions: &[String]) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.add_import(&inner.tree, path, conditions);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_import(tree, path, conditions)),
            UseTree::Name(name) => self.add_name(&name.ident.to_string(), path, conditions),
            UseTree::Rename(name) => {
                self.lines.insert(under(
                    format!("use {} as {}", [&path[..], &[name.ident.to_string()]].concat().join("::"), name.rename),
                    conditions,
                ));
            }
            UseTree::Glob(_) => panic!("a glob in a library's `pub use`"),
        }
    }

    fn add_name(&mut self, name: &str, path: &[String], conditions: &[String]) {
        let room = path.join("::");
        let inside = |path: &str| path == room || path.starts_with(&format!("{room}::"));
        let is_it = |entry: &&Entry<'_>| inside(&entry.path) && name_of(entry.item).is_some_and(|own| own == name);
        let defined: Vec<_> =
            self.entries.iter().filter(is_it).map(|entry| (entry.item, entry.conditions.clone())).collect();
        if defined.is_empty() {
            let path = [path, &[name.to_owned()]].concat().join("::");
            self.lines.insert(under(format!("use {path}"), conditions));
        }
        for (item, own_conditions) in defined {
            self.public.insert(name.to_owned());
            self.define(item, "", &[&own_conditions[..], conditions].concat());
        }
    }

    /// Adds the public items of a module that is public itself.
    fn add_module(&mut self, path: &str, conditions: &[String]) {
        self.lines.insert(under(format!("mod {path}"), conditions));
        let is_inside = |entry: &&Entry<'_>| entry.path == path && entry.conditions == conditions;
        let items: Vec<_> = self.entries.iter().filter(is_inside).map(|entry| entry.item).collect();
        for item in items {
            let Some(name) = name_of(item).filter(|_| is_public_item(item)) else { continue };
            self.public.insert(name);
            self.define(item, &format!("{path}::"), conditions);
        }
    }

    fn find_private(&mut self) {
        let items = self.entries.iter().map(|entry| entry.item);
        let types = items.filter(|item| !matches!(item, Item::Fn(_) | Item::Const(_) | Item::Static(_)));
        self.private = types.filter_map(name_of).filter(|name| !self.public.contains(name)).collect();
    }

    /// Adds the lines of a definition.
    fn define(&mut self, item: &Item, path: &str, conditions: &[String]) {
        let mut add = |line: String, attributes: &[Attribute]| {
            let conditions = [conditions, &conditions_of(attributes)].concat();
            self.lines.insert(under(line, &conditions));
        };
        match item {
            Item::Struct(item) => {
                let name = &item.ident;
                add(format!("struct {path}{name}{}{}", generics(&item.generics), marks(&item.attrs)), &item.attrs);
                for (index, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis, &[])) {
                    let field_name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
                    add(format!("{path}{name}.{field_name}: {}", text(&field.ty)), &field.attrs);
                }
                derived(&item.attrs).for_each(|derived| add(format!("impl {derived} for {path}{name}"), &item.attrs));
            }
            Item::Enum(item) => {
                let name = &item.ident;
                add(format!("enum {path}{name}{}{}", generics(&item.generics), marks(&item.attrs)), &item.attrs);
                for variant in &item.variants {
                    let fields = variant.fields.iter().map(field_text).collect::<Vec<_>>().join(", ");
                    let fields = match &variant.fields {
                        Fields::Unit => fields,
                        Fields::Named(_) => format!(" {{ {fields} }}"),
                        Fields::Unnamed(_) => format!("({fields})"),
                    };
                    add(format!("{path}{name}::{}{fields}{}", variant.ident, marks(&variant.attrs)), &variant.attrs);
                }
                derived(&item.attrs).for_each(|derived| add(format!("impl {derived} for {path}{name}"), &item.attrs));
            }
            Item::Trait(item) => {
                let name = &item.ident;
                let bounds = text(&item.supertraits);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                add(format!("trait {path}{name}{}{bounds}", generics(&item.generics)), &item.attrs);
                for item in &item.items {
                    match item {
                        TraitItem::Fn(item) => {
                            let provided = if item.default.is_some() { " { … }" } else { "" };
                            add(format!("{path}{name}::{}{provided}", text(&item.sig)), &item.attrs);
                        }
                        other => add(format!("{path}{name}::{}", text(other)), &[]),
                    }
                }
            }
            Item::Fn(item) => add(format!("{path}{}{}", text(&item.sig), marks(&item.attrs)), &item.attrs),
            Item::Const(item) => add(format!("const {path}{}: {}", item.ident, text(&item.ty)), &item.attrs),
            Item::Static(item) => add(format!("static {path}{}: {}", item.ident, text(&item.ty)), &item.attrs),
            Item::Type(item) => add(format!("type {path}{} = {}", item.ident, text(&item.ty)), &item.attrs),
            other => add(format!("{path}{}", text(other)), &[]),
        }
    }

    fn print(mut self, lines: &mut BTreeSet<String>) {
        let is_hidden = |entry: &Entry<'_>| self.hidden.iter().any(|name| entry.path.split("::").next() == Some(name));
        let items = self.entries.iter().map(|entry| (entry.item, entry.conditions.clone(), is_hidden(entry)));
        let items: Vec<_> = items.collect();
        for (item, conditions, is_hidden) in items {
            match item {
                Item::Impl(item) => self.add_impl(item, &conditions),
                Item::Macro(item) if !is_hidden => self.add_impls_of_macro(item, &conditions),
                _ => {}
            }
        }
        lines.append(&mut self.lines);
    }

    fn add_impl(&mut self, item: &ItemImpl, conditions: &[String]) {
        let own = last_name(&item.self_ty);
        let conditions = [conditions, &conditions_of(&item.attrs)].concat();
        if has_tests(&conditions) {
            return;
        }
        let parameters = generics(&item.generics);
        let bounds =
            item.generics.where_clause.as_ref().map_or_else(String::new, |clause| format!(" {}", text(clause)));
        let self_type = text(&item.self_ty);
        if let Some((.., path, _)) = &item.trait_ {
            let names = [vec![own], path.segments.iter().flat_map(names_in).collect()].concat();
            if names.iter().any(|name| self.private.contains(name))
                || !names.iter().any(|name| self.public.contains(name))
            {
                return;
            }
            let types = item.items.iter().filter_map(|item| match item {
                ImplItem::Type(item) => Some(format!(" {} = {};", item.ident, text(&item.ty))),
                _ => None,
            });
            let types = types.collect::<String>();
            let space = if parameters.is_empty() { " " } else { &*format!("{parameters} ") };
            let line = format!(
                "impl{space}{} for {self_type}{bounds}{types}",
                path.segments.last().map_or_else(String::new, text)
            );
            self.lines.insert(under(line, &conditions));
            return;
        }
        if !self.public.contains(&own) {
            return;
        }
        let bounds =
            if item.generics.params.is_empty() { String::new() } else { format!(" with {parameters}{bounds}") };
        let mut members: Vec<(String, Vec<String>)> = Vec::new();
        for member in &item.items {
            match member {
                ImplItem::Fn(member) if is_public(&member.vis, &member.attrs) => {
                    members
                        .push((format!("{}{}", text(&member.sig), marks(&member.attrs)), conditions_of(&member.attrs)));
                }
                ImplItem::Const(member) if is_public(&member.vis, &member.attrs) => {
                    members
                        .push((format!("const {}: {}", member.ident, text(&member.ty)), conditions_of(&member.attrs)));
                }
                ImplItem::Macro(member) => {
                    let name = text(&member.mac.path);
                    let functions = self.functions_of_macro(&name);
                    assert!(!functions.is_empty(), "{name}! in an impl of {own} has no function that can be read");
                    members.extend(functions.into_iter().map(|function| (function, Vec::new())));
                }
                _ => {}
            }
        }
        for (member, own_conditions) in members {
            let conditions = [&conditions[..], &own_conditions].concat();
            self.lines.insert(under(format!("{self_type}::{member}{bounds}"), &conditions));
        }
    }

    /// Returns the public functions that a macro of this package writes into an `impl`, if it has no parameters.
    fn functions_of_macro(&self, name: &str) -> Vec<String> {
        let Some(definition) = self.definition_of_macro(name) else { return Vec::new() };
        let body = definition.mac.tokens.to_string();
        let body = body.split_once("=>").map_or("", |(_, body)| body).trim().trim_end_matches(';').trim();
        let Ok(item) = syn::parse_str::<ItemImpl>(&format!("impl Own {body}")) else { return Vec::new() };
        let functions = item.items.iter().filter_map(|item| match item {
            ImplItem::Fn(item) if is_public(&item.vis, &item.attrs) => {
                Some(format!("{}{}", text(&item.sig), marks(&item.attrs)))
            }
            _ => None,
        });
        functions.collect()
    }

    /// Adds the call of a macro of this package that writes an `impl`.
    fn add_impls_of_macro(&mut self, item: &ItemMacro, conditions: &[String]) {
        let name = text(&item.mac.path);
        let Some(definition) = self.definition_of_macro(&name) else { return };
        let (body, given) = (definition.mac.tokens.to_string(), item.mac.tokens.to_string());
        let words = |text: &str| -> BTreeSet<String> {
            text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').map(str::to_owned).collect()
        };
        let (body, names) = (words(&body), words(&given));
        if body.contains("impl") && body.union(&names).any(|word| self.public.contains(word)) {
            let conditions = [conditions, &conditions_of(&item.attrs)].concat();
            self.lines.insert(under(format!("{name}!({})", tidy(&given)), &conditions));
        }
    }

    fn definition_of_macro(&self, name: &str) -> Option<&'a ItemMacro> {
        self.entries.iter().find_map(|entry| match entry.item {
            Item::Macro(item) if item.ident.as_ref().is_some_and(|own| own == name) => Some(item),
            _ => None,
        })
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Const(item) => &item.ident,
        Item::Static(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// A field of a variant, without its documentation.
fn field_text(field: &syn::Field) -> String {
    field.ident.as_ref().map_or_else(|| text(&field.ty), |name| format!("{name}: {}", text(&field.ty)))
}

fn is_public_item(item: &Item) -> bool {
    match item {
        Item::Struct(item) => is_public(&item.vis, &item.attrs),
        Item::Enum(item) => is_public(&item.vis, &item.attrs),
        Item::Trait(item) => is_public(&item.vis, &item.attrs),
        Item::Type(item) => is_public(&item.vis, &item.attrs),
        Item::Fn(item) => is_public(&item.vis, &item.attrs),
        Item::Const(item) => is_public(&item.vis, &item.attrs),
        Item::Static(item) => is_public(&item.vis, &item.attrs),
        _ => false,
    }
}

fn is_public(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    let is_hidden = attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc") && tidy(&attribute.meta.to_token_stream().to_string()) == "doc(hidden)"
    });
    matches!(visibility, Visibility::Public(_)) && !is_hidden
}

/// The attributes that are part of an interface, behind the item.
fn marks(attributes: &[Attribute]) -> String {
    let marks = ["non_exhaustive", "must_use", "deprecated"];
    let named = |name: &&str| attributes.iter().any(|attribute| attribute.path().is_ident(name));
    marks.iter().filter(|name| named(name)).map(|name| format!(" #[{name}]")).collect()
}

/// The traits that are derived.
fn derived(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    let lists = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    let traits = lists.flat_map(|list| {
        list.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated).expect("a list of traits")
    });
    traits.map(|path| path.segments.last().map_or_else(String::new, text))
}

/// The last name of a type's path, without references.
fn last_name(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |segment| segment.ident.to_string()),
        Type::Reference(reference) => last_name(&reference.elem),
        other => text(other),
    }
}

/// The names of a segment of a path and of its type arguments.
fn names_in(segment: &syn::PathSegment) -> Vec<String> {
    let mut names = vec![segment.ident.to_string()];
    if let PathArguments::AngleBracketed(arguments) = &segment.arguments {
        names.extend(arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(of) => Some(last_name(of)),
            _ => None,
        }));
    }
    names
}

fn generics(generics: &Generics) -> String {
    if generics.params.is_empty() { String::new() } else { format!("<{}>", text(&generics.params)) }
}

/// A line with the conditions under which its item is there.
fn under(line: String, conditions: &[String]) -> String {
    let conditions: BTreeSet<_> = conditions.iter().map(|condition| tidy(condition)).collect();
    if conditions.is_empty() {
        return line;
    }
    format!("{line}  [{}]", conditions.into_iter().collect::<Vec<_>>().join(", "))
}

fn text(tokens: &impl ToTokens) -> String {
    tidy(&tokens.to_token_stream().to_string())
}

/// Tokens as they are written by hand, nearly.
fn tidy(tokens: &str) -> String {
    let mut text = tokens.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" : ", ": "),
        (" , ", ", "),
        (" ,", ","),
        ("& ", "&"),
        (" < ", "<"),
        ("< ", "<"),
        (" <", "<"),
        (" > ", "> "),
        (" >", ">"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("-> ", "-> "),
        (" ;", ";"),
        ("- >", "->"),
        ("' ", "'"),
        ("[ ", "["),
        (" ]", "]"),
        ("# [", "#["),
        (",)", ")"),
        (" .", "."),
    ] {
        text = text.replace(from, to);
    }
    text.replace("(mut self", "(self").replace("->(", "-> (").replace("=(", "= (").replace(")->", ") ->")
}
