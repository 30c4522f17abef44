//! The calls of one process.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The calls that one process makes. As text it is `tasks:rate`, with a rate in calls per second or `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLoad {
    /// The number of tasks that make calls at once.
    pub tasks: NonZeroU32,
    /// The calls per second of all tasks together. `None` for calls one after the other.
    pub calls_per_second: Option<NonZeroU32>,
}

/// The error of a text that is no [`ProcessLoad`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidLoad {
    text: String,
}

/// The rate of calls one after the other.
const UNPACED: &str = "max";

impl FromStr for ProcessLoad {
    type Err = InvalidLoad;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |(tasks, rate): (&str, &str)| {
            let tasks = tasks.parse().ok()?;
            let calls_per_second = if rate == UNPACED { None } else { Some(rate.parse().ok()?) };
            Some(Self { tasks, calls_per_second })
        };
        text.split_once(':').and_then(parse).ok_or_else(|| InvalidLoad { text: text.to_owned() })
    }
}

impl fmt::Display for ProcessLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calls_per_second {
            Some(rate) => write!(f, "{}:{rate}", self.tasks),
            None => write!(f, "{}:{UNPACED}", self.tasks),
        }
    }
}

impl fmt::Display for InvalidLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a load must be `tasks:rate` with numbers from 1 on, got `{}`: write `8:5000` or `32:max`", self.text)
    }
}

impl std::error::Error for InvalidLoad {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_tasks_and_rate() {
        for text in ["32:max", "8:5000", "1:1"] {
            assert_eq!(text.parse::<ProcessLoad>().expect(text).to_string(), text);
        }
        for text in ["", "8", "8:", "0:max", "8:0", "8:5000:1", "-1:max", "8:fast"] {
            let error = text.parse::<ProcessLoad>().expect_err(text);
            assert!(error.to_string().contains(&format!("got `{text}`")), "{error}");
        }
    }
}
