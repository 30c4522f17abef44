//! Checks of the sources themselves: language, names, import order, units and the form of error messages.

mod imports;
mod language;
mod messages;
mod modules;
mod names;
mod sources;
mod units;
