//! Names of the pieces of keys, which overrides match by.

use std::fmt::Write;

/// The name of a piece.
#[derive(Clone, Debug)]
pub(crate) struct PieceName {
    name: String,
    /// The text before the piece in the key.
    text: String,
}

impl PieceName {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), text: format!(":{name}:") }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the forms of a key that is this piece alone, with addresses of these prefixes as values.
    pub(crate) fn only_form_of_addresses(&self, ipv4_prefix: u8, ipv6_prefix: u8) -> Vec<Vec<String>> {
        vec![vec![format!("{}:/{ipv4_prefix}/{ipv6_prefix}", self.name)]]
    }

    /// Returns the forms of a key that is this piece alone.
    pub(crate) fn only_form(&self) -> Vec<Vec<String>> {
        vec![vec![self.name.clone()]]
    }
}

/// The names that the pieces of a key have so far.
#[derive(Debug)]
pub struct PieceNames {
    /// Those of the form that is named now.
    in_form: Vec<String>,
    /// Those of all forms, with the origin of each one's values.
    all: Vec<(String, ValueOrigin)>,
}

/// The origin of a piece's values. Equal values of two origins differ in meaning.
#[derive(Debug, PartialEq, Eq)]
enum ValueOrigin {
    /// The method or the route.
    Line,
    Address,
    /// The header of this name.
    Header(String),
    /// The parameter of the path of this name.
    #[cfg(feature = "axum")]
    PathParam(String),
    /// The function with this number.
    Function(usize),
}

impl Default for PieceNames {
    fn default() -> Self {
        // These pieces cannot have another name, so a header never has theirs.
        let all = ["method", "path"].map(|name| (name.to_owned(), ValueOrigin::Line)).into();
        Self { in_form: Vec::new(), all }
    }
}

impl PieceNames {
    /// Adds the name of a piece that cannot have another.
    pub(crate) fn reserve(&mut self, name: &str) {
        self.in_form.push(name.to_owned());
    }

    /// Names a piece whose values are addresses.
    pub(crate) fn assign_address(&mut self, piece: &mut PieceName) {
        self.assign(piece, ValueOrigin::Address);
    }

    /// Names a piece whose values are those of the header with its name.
    pub(crate) fn assign_header(&mut self, piece: &mut PieceName) {
        let origin = ValueOrigin::Header(piece.name.clone());
        self.assign(piece, origin);
    }

    /// Names a piece whose values are those of the path's parameter with its name.
    #[cfg(feature = "axum")]
    pub(crate) fn assign_path_param(&mut self, piece: &mut PieceName) {
        let origin = ValueOrigin::PathParam(piece.name.clone());
        self.assign(piece, origin);
    }

    /// Names a piece whose values come from a function. No other piece has its name: equal values of two functions may
    /// differ in meaning.
    pub(crate) fn assign_function(&mut self, piece: &mut PieceName) {
        let origin = ValueOrigin::Function(self.all.len());
        self.assign(piece, origin);
    }

    /// Names a piece. It gets a number if another one of the same form has its name, or one with values of another
    /// origin.
    fn assign(&mut self, piece: &mut PieceName, origin: ValueOrigin) {
        if let Some(numbered) = self.numbered(&piece.name, &origin) {
            *piece = PieceName::new(&numbered);
        }
        self.reserve(&piece.name);
        self.all.push((piece.name.clone(), origin));
    }

    /// Names the pieces of two alternatives. Both may use a name: an address is the same wherever it was found.
    pub(crate) fn alternatives(&mut self, first: impl FnOnce(&mut Self), second: impl FnOnce(&mut Self)) {
        let before = self.in_form.clone();
        first(self);
        let in_first = std::mem::replace(&mut self.in_form, before);
        second(self);
        self.in_form.extend(in_first);
    }

    /// Returns the name with the lowest number that is free; `None` if it is free without one.
    fn numbered(&self, name: &str, origin: &ValueOrigin) -> Option<String> {
        let is_of_other = |name: &str| self.all.iter().any(|(taken, other)| taken == name && other != origin);
        let is_taken = |name: &str| self.in_form.iter().any(|taken| taken == name) || is_of_other(name);
        if !is_taken(name) {
            return None;
        }
        (2..).map(|number| format!("{name}{number}")).find(|numbered| !is_taken(numbered))
    }
}

/// Returns the template of the keys of a rule with these pieces, in the syntax of the attribute's `key`.
pub(crate) fn template(rule: &str, pieces: &[String]) -> String {
    let mut template = rule.replace('{', "{{").replace('}', "}}");
    for piece in pieces {
        let _ = write!(template, ":{}:{{{piece}}}", without_kind(piece));
    }
    template
}

/// Returns the name of a piece in a form, without the kind of its values.
pub(crate) fn without_kind(piece: &str) -> &str {
    piece.split_once(":/").map_or(piece, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_form_are_unique() {
        let mut names = PieceNames::default();
        let assigned = ["ip", "x-a", "ip", "ip2", "ip"].map(|name| {
            let mut piece = PieceName::new(name);
            names.assign_header(&mut piece);
            piece.name
        });
        assert_eq!(assigned, ["ip", "x-a", "ip2", "ip22", "ip3"]);
    }

    #[test]
    fn alternatives_share_no_name_if_their_values_have_two_origins() {
        let mut names = PieceNames::default();
        let pieces = ["ip", "key", "key2", "method", "ip", "key", "key", "ip2"].map(PieceName::new);
        let [mut header, mut key, mut key2, mut method, mut address, mut first, mut second, mut last] = pieces;
        names.alternatives(
            |names| names.assign_header(&mut header),
            |names| {
                names.alternatives(|names| names.assign_header(&mut key), |names| names.assign_header(&mut key2));
                names.assign_header(&mut method);
            },
        );
        let mut names = PieceNames { in_form: Vec::new(), ..names };
        names.alternatives(|names| names.assign_address(&mut address), |names| names.assign_function(&mut first));
        let mut names = PieceNames { in_form: Vec::new(), ..names };
        names.alternatives(|names| names.assign_function(&mut second), |names| names.assign_header(&mut last));
        let headers = [header, key, key2, method].map(|piece| piece.name);
        assert_eq!(headers, ["ip", "key", "key2", "method2"]);
        assert_eq!([address, first, second, last].map(|piece| piece.name), ["ip2", "key3", "key4", "ip22"]);
    }

    #[test]
    fn alternatives_share_names_except_those_of_functions() {
        let mut names = PieceNames::default();
        let [mut first, mut second, mut third] = ["ip", "ip", "ip"].map(PieceName::new);
        let [mut first_key, mut second_key] = ["key", "key"].map(PieceName::new);
        names.alternatives(
            |names| {
                names.assign_address(&mut first);
                names.assign_function(&mut first_key);
            },
            |names| {
                names.assign_address(&mut second);
                names.assign_function(&mut second_key);
            },
        );
        names.assign_address(&mut third);
        assert_eq!([first, second, third].map(|piece| piece.name), ["ip", "ip", "ip2"]);
        assert_eq!([first_key, second_key].map(|piece| piece.name), ["key", "key2"]);
    }

    #[test]
    fn templates_have_the_kinds_of_values_and_escape_the_name_of_the_rule() {
        let pieces = ["ip:/32/64".into(), "method:/method".into(), "x-api-key".into()];
        assert_eq!(template("a{b}", &pieces), "a{{b}}:ip:{ip:/32/64}:method:{method:/method}:x-api-key:{x-api-key}");
    }
}
