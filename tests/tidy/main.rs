//! Checks of the sources themselves: sizes of the house, language, names, import order, the form of error messages,
//! code in the README, and the page about the architecture.

mod architecture;
mod house;
mod imports;
mod language;
mod messages;
mod modules;
mod names;
mod packages;
mod public_api;
mod snippets;
mod sources;
