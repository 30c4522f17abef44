//! The key, as a chain of calls. Each value is escaped by itself.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::Expansion;
use super::spans::{borrowed, point_at};
use crate::plan::{Captured, Key, Part, Rule};

impl Expansion<'_> {
    pub(super) fn key(&self, rule: &Rule) -> TokenStream {
        let runtime = &self.runtime;
        match &rule.key {
            Key::Value(value) => {
                let (name, borrowed) = (&rule.name, borrowed(value));
                self.with_borrowed_arguments(value, point_at(value, quote!(#runtime::key(#name, #borrowed))))
            }
            Key::Template(parts) => {
                if let Some(text) = rule.key.constant() {
                    return quote!({ static KEY: #runtime::StaticKey = #runtime::StaticKey::new(#text); &KEY });
                }
                let (text, parts) = match parts.split_first() {
                    Some((Part::Text(text), parts)) => (text.to_token_stream(), parts),
                    _ => (quote!(""), parts.as_slice()),
                };
                let parts = parts.iter().map(|part| self.part(part)).collect::<TokenStream>();
                self.with_borrowed_arguments(&parts, quote!(#runtime::Key::new(#text) #parts))
            }
        }
    }

    fn part(&self, part: &Part) -> TokenStream {
        match part {
            Part::Text(text) => quote!(.text(#text)),
            Part::Value(value) => {
                let borrowed = borrowed(value);
                point_at(value, quote!(.part(#borrowed)))
            }
            Part::Formatted(template, value) => quote!(.part(::core::format_args!(#template, #value))),
            Part::Captured(captured) => self.captured(captured),
        }
    }

    fn captured(&self, captured: &Captured) -> TokenStream {
        let runtime = &self.runtime;
        let Captured { template, others, text_before, text_after } = captured;
        quote!(.part(#runtime::captured_value(::core::format_args!(#template #(, #others = "")*), #text_before, #text_after)))
    }
}
