//! The serialised form of a rule in force, for pages and reports of operators.

use serde_core::{Serialize, Serializer};

use super::written_fields::{FieldValue, write_fields};
use crate::{Origin, RuleInForce};

/// Writes a map of `name`, `limits`, `attribute_limits`, `mode`, `on_error`, `deadline`, `leases`, `origin` and
/// `overrides`, their number. Needs the feature `serde`.
///
/// `on_error`, `deadline` and `leases` are left out if they are not configured. A deadline is a text of whole milliseconds such as
/// `50ms`, rounded up.
impl Serialize for RuleInForce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let overrides = u64::try_from(self.overrides()).unwrap_or(u64::MAX);
        let fields = [
            Some(("name", FieldValue::Text(self.name()))),
            Some(("limits", FieldValue::Limits(self.limits()))),
            Some(("attribute_limits", FieldValue::Texts(self.attribute_limits()))),
            Some(("mode", FieldValue::Text(self.mode().as_str()))),
            self.on_error().map(|policy| ("on_error", FieldValue::Text(policy.as_str()))),
            self.deadline().map(|deadline| ("deadline", FieldValue::Deadline(deadline))),
            self.leases().map(|leases| ("leases", FieldValue::Flag(leases))),
            Some(("origin", FieldValue::Text(self.origin().as_str()))),
            Some(("overrides", FieldValue::Number(overrides))),
        ];
        write_fields(serializer, &fields.into_iter().flatten().collect::<Vec<_>>())
    }
}

/// Writes the text of the origin. Needs the feature `serde`.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
