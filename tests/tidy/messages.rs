//! The form of `ErrorKind::Config` messages, and the table of all of them.
//!
//! A message names an option or a server, states the bound and the value, and ends with the remedy: "`max_keys` must be
//! at least 1, got 0: leave it out for the default". `config_messages.txt` lists the templates of all messages.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprCall, ExprMacro, ExprTuple, Lit, Local, Pat};

use crate::modules::{conditions_of, is_for_tests, modules};

const TABLE: &str = include_str!("config_messages.txt");

/// The first words of a remedy, which follows a colon or a semicolon.
const REMEDIES: &[&str] = &[
    "write", "use", "leave", "remove", "enable", "check", "call", "set", "turn", "choose", "add", "give", "renew",
    "read", "publish", "restart", "shorten",
];

/// Collects the message templates of one file.
#[derive(Default)]
struct Messages {
    found: BTreeSet<String>,
    /// The literals that each variable of the current function is made of.
    variables: BTreeMap<String, Vec<String>>,
    /// Closures of the current function that make a configuration error of their argument.
    constructors: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Messages {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !conditions_of(&module.attrs).iter().any(|condition| is_for_tests(condition)) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.visit_function(&function.sig.ident.to_string(), &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.visit_function(&function.sig.ident.to_string(), &function.block);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if let (Pat::Ident(name), Some(init)) = (without_type(&local.pat), &local.init) {
            let name = name.ident.to_string();
            if matches!(&*init.expr, Expr::Closure(closure) if is_config_error(&closure.body)) {
                self.constructors.insert(name.clone());
            }
            self.variables.insert(name, literals(&init.expr));
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let message = match &*call.func {
            Expr::Path(path) => {
                let name = path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
                let is_constructor = name == "config_error" || self.constructors.contains(&name);
                if is_constructor { call.args.first() } else { call.args.get(1).filter(|_| is_new_error(call)) }
            }
            _ => None,
        };
        message.into_iter().for_each(|message| self.add(message));
        visit::visit_expr_call(self, call);
    }

    /// A kind with its message, as in a table of server errors.
    fn visit_expr_tuple(&mut self, tuple: &'ast ExprTuple) {
        if tuple.elems.first().is_some_and(is_config_kind) {
            tuple.elems.iter().skip(1).for_each(|message| self.add(message));
        }
        visit::visit_expr_tuple(self, tuple);
    }
}

impl Messages {
    fn visit_function(&mut self, name: &str, block: &Block) {
        self.variables.clear();
        self.constructors.clear();
        if name.ends_with("_problem") {
            let mut text = Literals::default();
            text.visit_block(block);
            self.found.extend(text.found);
        }
        visit::visit_block(self, block);
    }

    fn add(&mut self, message: &Expr) {
        let mut found = literals(message);
        if found.is_empty()
            && let Expr::Path(path) = message
            && let Some(name) = path.path.get_ident()
        {
            found.extend(self.variables.get(&name.to_string()).into_iter().flatten().cloned());
        }
        self.found.extend(found);
    }
}

/// String literals of an expression, and the templates of its `format!` calls.
#[derive(Default)]
struct Literals {
    found: Vec<String>,
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_lit(&mut self, literal: &'ast Lit) {
        if let Lit::Str(text) = literal {
            self.found.push(text.value());
        }
    }

    /// A part of the message, which the template names.
    fn visit_local(&mut self, _: &'ast Local) {}

    /// A message of another function, which is visited by itself.
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if !matches!(&*call.func, Expr::Path(path) if path.path.segments.iter().any(|segment| segment.ident.to_string().ends_with("_problem")))
        {
            visit::visit_expr_call(self, call);
        }
    }

    fn visit_expr_macro(&mut self, call: &'ast ExprMacro) {
        let first = call.mac.tokens.clone().into_iter().next();
        let literal = first.and_then(|token| syn::parse_str::<Lit>(&token.to_string()).ok());
        literal.iter().for_each(|literal| self.visit_lit(literal));
    }
}

fn literals(expression: &Expr) -> Vec<String> {
    let mut literals = Literals::default();
    literals.visit_expr(expression);
    // Others are parts of a condition or of an argument.
    literals.found.retain(|text| text.contains(' '));
    literals.found
}

fn without_type(pattern: &Pat) -> &Pat {
    if let Pat::Type(typed) = pattern { &typed.pat } else { pattern }
}

/// Returns whether an expression is `Error::new(ErrorKind::Config, …)`, or contains it.
fn is_config_error(expression: &Expr) -> bool {
    struct Finder(bool);
    impl<'ast> Visit<'ast> for Finder {
        fn visit_expr_call(&mut self, call: &'ast ExprCall) {
            self.0 |= is_new_error(call);
            visit::visit_expr_call(self, call);
        }
    }
    let mut finder = Finder(false);
    finder.visit_expr(expression);
    finder.0
}

fn is_new_error(call: &ExprCall) -> bool {
    let is_new =
        matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "new"));
    is_new && call.args.first().is_some_and(is_config_kind)
}

fn is_config_kind(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Config"))
}

fn messages() -> BTreeSet<String> {
    let mut messages = Messages::default();
    // The problems of `http` are bodies of answers, not messages.
    for module in modules("limiter-core", false).iter().filter(|module| !module.path.starts_with("http")) {
        module.items.iter().for_each(|item| messages.visit_item(item));
    }
    messages.found
}

/// Returns whether a message ends with a remedy.
fn has_remedy(message: &str) -> bool {
    let parts = message.split([':', ';', ',']).skip(1).map(str::trim_start);
    parts.into_iter().any(|part| REMEDIES.iter().any(|word| part.starts_with(word)))
}

#[test]
fn configuration_errors_name_the_option_or_server_and_the_remedy() {
    let messages = messages();
    let starts_well = |message: &String| {
        message.starts_with('`')
            || message.starts_with('{')
            || ["it ", "the ", "this ", "Redis "].iter().any(|start| message.starts_with(start))
    };
    let wrong: Vec<_> = messages
        .iter()
        .filter(|message| !has_remedy(message) || !starts_well(message) || message.ends_with('.'))
        .map(|message| format!("  {message}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "messages without an option or server in front, or without a remedy:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_table_lists_every_configuration_error() {
    let messages = messages();
    let listed: BTreeSet<_> = TABLE.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let missing: Vec<_> = messages.difference(&listed).map(|message| format!("+ {message}")).collect();
    let stale: Vec<_> = listed.difference(&messages).map(|message| format!("- {message}")).collect();
    let differences = [missing, stale].concat().join("\n");
    assert!(differences.is_empty(), "differences to config_messages.txt:\n{differences}");
}
