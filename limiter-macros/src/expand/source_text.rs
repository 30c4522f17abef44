//! The source text of an expression, as it was written.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Returns the text of these tokens, with one space for all white space between two of them.
///
/// A token stream's own text has spaces in other places, as in `Limits :: SEARCH`.
pub(super) fn source_text(tokens: TokenStream) -> String {
    if !proc_macro::is_available() {
        return tokens.to_string();
    }
    let mut source = SourceText::default();
    source.add_all(tokens);
    source.text
}

#[derive(Default)]
struct SourceText {
    text: String,
    /// The line and the column at which the last token ends.
    end: (usize, usize),
}

impl SourceText {
    fn add_all(&mut self, tokens: TokenStream) {
        for token in tokens {
            let span = token.span().unwrap();
            let (start, end) = ((span.start().line(), span.start().column()), (span.end().line(), span.end().column()));
            let TokenTree::Group(group) = token else {
                self.add(&token.to_string(), start, end);
                continue;
            };
            let (open, close) = match group.delimiter() {
                Delimiter::Parenthesis => ("(", ")"),
                Delimiter::Bracket => ("[", "]"),
                Delimiter::Brace => ("{", "}"),
                Delimiter::None => {
                    self.add_all(group.stream());
                    continue;
                }
            };
            // The span of a parsed group is that of the whole, so its delimiters are at its ends.
            self.add(open, start, (start.0, start.1 + 1));
            self.add_all(group.stream());
            self.add(close, (end.0, end.1.saturating_sub(1)), end);
        }
    }

    fn add(&mut self, token: &str, start: (usize, usize), end: (usize, usize)) {
        if !self.text.is_empty() && self.end != start {
            self.text.push(' ');
        }
        self.text.push_str(token);
        self.end = end;
    }
}
