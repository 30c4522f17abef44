//! The mode of a rule, and the switch of all rules by the environment.

use std::fmt;
use std::str::FromStr;

use crate::error::NamedValue;
use crate::rule::log_apart;
use crate::rule::message_text::{quoted, wrong_name_problem};
use crate::{Error, ErrorKind, TARGET};

/// The mode of a rule: see [`Rule::mode`](crate::Rule::mode).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Calls above the limit are denied.
    #[default]
    Enforce,
    /// The rule is counted and decided as if it was enforced, and each call runs.
    ///
    /// A call that enforcement would deny takes nothing. Only
    /// [`on_shadowed`](crate::Builder::on_shadowed) observers and [`Allowed::shadowed`](crate::Allowed::shadowed) get
    /// its denial. No call waits for the rule's permits, and a failure of the store denies no call.
    Shadow,
    /// Calls run as if the rule did not exist. Nothing is counted or reported.
    Off,
    /// Every call is denied, and nothing is counted. The denial [is final](crate::Denied::is_final).
    Deny,
}

impl Mode {
    /// The name of the mode, as in a file of rules: `enforce`, `shadow`, `off` or `deny`. It stays the same in later
    /// versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
            Self::Deny => "deny",
        }
    }

    /// Returns the mode of a rule while `RATE_LIMITED_MODE` has this value.
    ///
    /// `off` replaces every mode. `enforce` and `shadow` replace each other only.
    pub(crate) fn switched_to(self, switch: Option<Self>) -> Self {
        match (self, switch) {
            (_, Some(Self::Off)) => Self::Off,
            (Self::Enforce | Self::Shadow, Some(mode @ (Self::Enforce | Self::Shadow))) => mode,
            _ => self,
        }
    }

    /// Reads `RATE_LIMITED_MODE` and logs its value.
    ///
    /// # Errors
    /// As for [`in_environment`](Self::in_environment).
    pub(crate) fn from_environment() -> Result<Option<Self>, Error> {
        let mode = Self::in_environment()?;
        if let Some(mode) = mode {
            log_apart(move || {
                tracing::warn!(target: TARGET, %mode, "{MODE_VARIABLE} sets the mode of all rate limits of a limiter");
            });
        }
        Ok(mode)
    }

    /// Reads `RATE_LIMITED_MODE`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a value that is no such mode.
    pub(crate) fn in_environment() -> Result<Option<Self>, Error> {
        let Some(text) = std::env::var_os(MODE_VARIABLE) else { return Ok(None) };
        let mode = match &*text.to_string_lossy() {
            "" => return Ok(None),
            "off" => Self::Off,
            "shadow" => Self::Shadow,
            "enforce" => Self::Enforce,
            other => {
                let problem = format!(
                    "`RATE_LIMITED_MODE` must be `off`, `shadow` or `enforce`, got `{}`: write one of them, or unset it",
                    other.escape_default()
                );
                return Err(Error::new(ErrorKind::Config, problem));
            }
        };
        Ok(Some(mode))
    }
}

/// The environment variable that sets the mode of all rules.
pub(crate) const MODE_VARIABLE: &str = "RATE_LIMITED_MODE";

impl NamedValue for Mode {
    const OPTION: &'static str = "mode";
    const VALUES: &'static [Self] = &[Self::Enforce, Self::Shadow, Self::Off, Self::Deny];

    fn name(self) -> &'static str {
        self.as_str()
    }
}

/// Writes [`as_str`](Mode::as_str).
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Parses the [name](Mode::as_str) of a mode.
impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::named(text)
            .ok_or_else(|| Error::new(ErrorKind::Config, wrong_name_problem::<Self>(&quoted(text), Some(text))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_turns_everything_off_and_else_replaces_only_enforce_and_shadow() {
        use Mode::{Deny, Enforce, Off, Shadow};
        for (switch, expected) in [
            (None, [Enforce, Shadow, Off, Deny]),
            (Some(Off), [Off; 4]),
            (Some(Shadow), [Shadow, Shadow, Off, Deny]),
            (Some(Enforce), [Enforce, Enforce, Off, Deny]),
        ] {
            assert_eq!([Enforce, Shadow, Off, Deny].map(|mode| mode.switched_to(switch)), expected, "{switch:?}");
        }
    }

    #[test]
    fn a_mode_is_read_from_its_name() {
        let cases = [(Mode::Enforce, "enforce"), (Mode::Shadow, "shadow"), (Mode::Off, "off"), (Mode::Deny, "deny")];
        for (mode, name) in cases {
            assert_eq!((mode.as_str(), mode.to_string()), (name, name.to_owned()));
            assert_eq!(name.parse::<Mode>().expect("a mode"), mode);
        }
        let error = "Off".parse::<Mode>().expect_err("upper case");
        let message = "`mode` must be one of `enforce`, `shadow`, `off` and `deny`, got `\"Off\"`: write `\"off\"`";
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, message));
    }
}
