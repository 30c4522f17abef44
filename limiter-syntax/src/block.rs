//! Blocks as text: `10min`, `1min x2 up to 1d`.

use std::fmt;

use crate::duration::{DurationProblem, MAX_WINDOW_MILLIS, WindowText, parse_window};

/// The times of blocks, as a text has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockText {
    /// The length of the first block in milliseconds, 1 to [`MAX_WINDOW_MILLIS`].
    pub time_millis: u64,
    /// The length of each further block by that of the one before it, in thousandths: 1 000 to 1 000 000.
    pub factor_thousandths: u32,
    /// The length of the longest block in milliseconds, `time_millis` to [`MAX_WINDOW_MILLIS`].
    pub most_millis: u64,
    /// Attempts during a block begin it again.
    pub is_extended: bool,
}

/// The reason why a text, or its parts, are no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockProblem<'t> {
    /// The text is none of the forms.
    Unreadable,
    /// A time is no duration, is zero or too long.
    Time(DurationProblem<'t>),
    /// A time that was given as a number is zero, or longer than [`MAX_WINDOW_MILLIS`].
    TimeOutOfRange,
    /// The factor is below 1, above 1 000 or no number with at most three decimals.
    Factor,
    /// The longest block is shorter than the first one.
    MostBelowTime,
    /// There is a factor above 1 and no longest block, or the other way around.
    OnlyOneOfFactorAndMost,
}

/// The factor of blocks of one length, in thousandths.
const CONSTANT: u32 = 1000;
/// The largest factor, in thousandths.
const MAX_FACTOR: u32 = 1_000_000;

impl BlockText {
    /// Blocks of one length.
    #[must_use]
    pub const fn constant(millis: u64) -> Self {
        Self { time_millis: millis, factor_thousandths: CONSTANT, most_millis: millis, is_extended: false }
    }

    /// Returns the block of these parts.
    ///
    /// # Errors
    /// The first part out of its range.
    pub fn from_parts(
        time_millis: u64,
        factor_thousandths: Option<u32>,
        most_millis: Option<u64>,
        is_extended: bool,
    ) -> Result<Self, BlockProblem<'static>> {
        let is_time = |millis: &u64| (1..=MAX_WINDOW_MILLIS).contains(millis);
        let factor = factor_thousandths.unwrap_or(CONSTANT);
        if !is_time(&time_millis) || !most_millis.iter().all(is_time) {
            return Err(BlockProblem::TimeOutOfRange);
        }
        if !(CONSTANT..=MAX_FACTOR).contains(&factor) {
            return Err(BlockProblem::Factor);
        }
        match most_millis {
            Some(most) if most < time_millis => return Err(BlockProblem::MostBelowTime),
            None if factor > CONSTANT => return Err(BlockProblem::OnlyOneOfFactorAndMost),
            Some(most) if factor == CONSTANT && most > time_millis => {
                return Err(BlockProblem::OnlyOneOfFactorAndMost);
            }
            _ => {}
        }
        let most_millis = most_millis.unwrap_or(time_millis);
        Ok(Self { time_millis, factor_thousandths: factor, most_millis, is_extended })
    }
}

/// Returns a factor such as `2` or `1.5` in thousandths; `None` for anything else.
#[must_use]
pub fn parse_factor(text: &str) -> Option<u32> {
    const MAX_DECIMALS: usize = 3;
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > MAX_DECIMALS {
        return None;
    }
    let whole = whole.parse::<u32>().ok()?.checked_mul(CONSTANT)?;
    whole.checked_add(format!("{decimals:0<3}").parse().ok()?)
}

/// Parses a block: a duration, then the growth of further blocks, and whether attempts extend it.
///
/// ```
/// use limiter_syntax::{BlockText, parse_block};
///
/// let block = parse_block("1min x1.5 up to 1d extended")?;
/// assert_eq!((block.time_millis, block.factor_thousandths, block.most_millis), (60_000, 1500, 86_400_000));
/// assert!(block.is_extended);
/// assert_eq!(parse_block("10min"), Ok(BlockText::constant(600_000)));
/// # Ok::<(), limiter_syntax::BlockProblem<'_>>(())
/// ```
///
/// # Errors
/// The first problem of the text.
pub fn parse_block(text: &str) -> Result<BlockText, BlockProblem<'_>> {
    const EXTENDED: &str = "extended";
    let mut words: Vec<_> = text.split(' ').collect();
    let is_extended = words.len() > 1 && words.last() == Some(&EXTENDED);
    if is_extended {
        words.pop();
    }
    let time = |word| parse_window(word).map_err(BlockProblem::Time);
    match words[..] {
        [one] => BlockText::from_parts(time(one)?, None, None, is_extended),
        [one, factor, "up", "to", most] => {
            let factor = factor.strip_prefix('x').ok_or(BlockProblem::Unreadable)?;
            let factor = parse_factor(factor).ok_or(BlockProblem::Factor)?;
            BlockText::from_parts(time(one)?, Some(factor), Some(time(most)?), is_extended)
        }
        _ => Err(BlockProblem::Unreadable),
    }
}

impl fmt::Display for BlockText {
    /// Writes the text that [`parse_block`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", WindowText { millis: self.time_millis })?;
        if self.most_millis > self.time_millis {
            let (whole, decimals) = (self.factor_thousandths / CONSTANT, self.factor_thousandths % CONSTANT);
            write!(f, " x{whole}")?;
            if decimals > 0 {
                write!(f, ".{}", format!("{decimals:03}").trim_end_matches('0'))?;
            }
            write!(f, " up to {}", WindowText { millis: self.most_millis })?;
        }
        f.write_str(if self.is_extended { " extended" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in
            ["10m", "1m x2 up to 1d", "1m x1.5 up to 1d extended", "20s extended", "1s500ms", "1s x1.25 up to 2s"]
        {
            let block = parse_block(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
            assert_eq!(block.to_string(), text);
        }
        assert_eq!(
            parse_block("1min x2 up to 1min"),
            Ok(BlockText { factor_thousandths: 2000, ..BlockText::constant(60_000) })
        );
    }

    #[test]
    fn each_mistake_has_its_problem() {
        let cases = [
            ("", BlockProblem::Time(DurationProblem::Unreadable)),
            ("10", BlockProblem::Time(DurationProblem::NoUnit { number: "10" })),
            ("0s", BlockProblem::Time(DurationProblem::Zero)),
            ("3660d", BlockProblem::Time(DurationProblem::TooLong { millis: 3660 * 86_400_000 })),
            ("1min x0.5 up to 1d", BlockProblem::Factor),
            ("1min x1.0005 up to 1d", BlockProblem::Factor),
            ("1min x-1 up to 1d", BlockProblem::Factor),
            ("1min x1001 up to 1d", BlockProblem::Factor),
            ("1min x2 up to 30s", BlockProblem::MostBelowTime),
            ("1min x1 up to 1d", BlockProblem::OnlyOneOfFactorAndMost),
            ("1min 2 up to 1d", BlockProblem::Unreadable),
            ("1min x2", BlockProblem::Unreadable),
            ("1min  x2 up to 1d", BlockProblem::Unreadable),
            ("extended", BlockProblem::Time(DurationProblem::Unreadable)),
        ];
        for (text, problem) in cases {
            assert_eq!(parse_block(text), Err(problem), "{text}");
        }
        let no_most = BlockText::from_parts(1000, Some(2000), None, false);
        assert_eq!(no_most, Err(BlockProblem::OnlyOneOfFactorAndMost));
    }
}
