//! Settings of a rule that counts which share hashes cannot have.

use std::fmt;

use super::Rule;
use crate::{Algorithm, Layout, Limit};

/// A setting that counts which share a hash cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackedConflict {
    Algorithm(Algorithm),
    Zset,
    Block,
}

/// Writes it as messages name it.
impl fmt::Display for PackedConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Algorithm(algorithm) => write!(f, "`{algorithm}`"),
            Self::Zset => f.write_str("`layout = \"zset\"`"),
            Self::Block => f.write_str("`block`"),
        }
    }
}

/// Returns the message for a rule that has both.
pub(crate) fn packed_problem(conflict: PackedConflict) -> String {
    format!("`packed` must be left out with {conflict}, got both: remove one of them")
}

impl Rule {
    /// Returns the settings of calls that an override applies to, as far as they matter to [`packed`](Self::packed).
    pub(super) fn as_override_of(&self, rule: &Self) -> Self {
        let limits = if self.limits.is_empty() { &rule.limits } else { &self.limits };
        Self {
            limits: limits.clone(),
            algorithm: self.algorithm.or(rule.algorithm),
            layout: self.layout.or(rule.layout),
            packed: self.packed.or(rule.packed),
            call: self.call.or(rule.call),
            ..Self::default()
        }
    }

    /// Returns a setting that counts which share a hash cannot have, if there is one.
    pub(crate) fn packed_conflict(&self) -> Option<PackedConflict> {
        self.packed?;
        if self.call.block.is_some() {
            return Some(PackedConflict::Block);
        }
        if self.has_layout_of_own(Layout::Zset) {
            return Some(PackedConflict::Zset);
        }
        let counted_by = |limit: &Limit| match self.algorithm {
            Some(algorithm) if !limit.is_whole() => algorithm,
            _ => limit.algorithm(),
        };
        let mut algorithms = self.limits.iter().map(counted_by).chain(self.algorithm);
        algorithms.find(|algorithm| !algorithm.may_be_packed()).map(PackedConflict::Algorithm)
    }
}
