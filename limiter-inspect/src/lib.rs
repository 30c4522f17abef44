//! Readings of the limiters that share a store, for the command `limiter` and the dashboard of `rate-limited`. Use it through
//! these: its API changes with each release.

mod time_text;
mod duration_text;
mod key_pieces;
mod fleet;
mod activity_sums;
mod denials;
mod rules_alone;
mod key_report;
mod line_diff;
mod rule_settings;
mod new_counts;
mod rule_words;
mod text_effect;
mod packed_conflicts;
mod misspelling;
mod nearest_keys;
mod text_warnings;
mod limit_draft;
mod validity;

pub use activity_sums::{ActivitySums, CountOf, KeySum, RATES, RuleSum, rule_names};
pub use denials::{denial_json, denials_of_key};
pub use duration_text::write_duration;
pub use fleet::{Fleet, LiveLimits, LiveRule, fits, parts, place};
pub use key_pieces::{texts_and_parts, without_escapes};
pub use key_report::{KeyProblem, KeyQuestion, KeyReport, KeyState, RulesVersions, limit_json, limit_text, millis};
pub use limit_draft::{DraftSubject, LimitDraft, draft_limit};
pub use line_diff::{DiffLine, diff};
pub use misspelling::{is_misspelt, is_other_case, similar_name};
pub use nearest_keys::nearest_keys;
pub use new_counts::{NewCounts, new_counts};
pub use packed_conflicts::{PackedConflict, packed_conflicts};
pub use rule_settings::{LimitText, OVERRIDE, OverrideKeys, limits, overrides, shared_count};
pub use rule_words::{OverrideOutline, keys_in_words, override_outlines};
pub use rules_alone::{RuleOutline, outline, rules_alone, stated_keys};
pub use text_effect::{LimitChange, TextEffect};
pub use text_warnings::{TextWarning, text_warnings};
pub use time_text::rfc3339;
pub use validity::{FILE_SETTINGS, MAX_TEXT_BYTES, check_text, file_setting, place_in_text};
