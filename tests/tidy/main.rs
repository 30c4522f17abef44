//! Checks of the sources themselves: language, names, import order, units, the form of error messages, and code in the
//! README.

mod imports;
mod language;
mod messages;
mod modules;
mod names;
mod snippets;
mod sources;
mod units;
