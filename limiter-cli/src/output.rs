//! Output: text and tables for people, JSON for programs, messages on standard error.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, ContentArrangement, Row, Table, presets};
use serde_json::{Value, json};

use crate::arguments::{Color, GlobalArguments};
use crate::exit::Exit;
use crate::failure::Failure;

/// The narrowest terminal to which tables adapt.
const MIN_COLUMNS: u16 = 40;

/// The outputs of the command.
///
/// Results are written to standard output, and messages to standard error.
#[derive(Debug)]
pub(crate) struct Output {
    color: Color,
    is_json: bool,
}

/// The look of a text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
    Cyan,
}

impl Output {
    pub(crate) fn new(arguments: &GlobalArguments) -> Self {
        Self { color: arguments.color, is_json: arguments.json }
    }

    /// Returns the output for errors of the command line, which are found before it is parsed.
    pub(crate) fn before_parsing(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut output = Self { color: Color::Auto, is_json: false };
        let mut follows_color = false;
        for argument in arguments {
            match argument.to_str() {
                Some("--") => break,
                Some("--json") => output.is_json = true,
                Some("never") if follows_color => output.color = Color::Never,
                Some("--color=never") => output.color = Color::Never,
                Some("always") if follows_color => output.color = Color::Always,
                Some("--color=always") => output.color = Color::Always,
                _ => {}
            }
            follows_color = argument.to_str() == Some("--color");
        }
        output
    }

    /// Returns whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Returns whether standard output has colours.
    pub(crate) fn has_color(&self) -> bool {
        self.color.is_on(io::stdout().is_terminal())
    }

    /// Returns an output that paints texts for standard error.
    pub(crate) fn painted_for_errors(&self) -> Self {
        let color = if self.has_error_color() { Color::Always } else { Color::Never };
        Self { color, is_json: self.is_json }
    }

    fn has_error_color(&self) -> bool {
        self.color.is_on(io::stderr().is_terminal())
    }

    /// Returns a text for standard output in this style, or as it is if there are no colours.
    pub(crate) fn paint(&self, style: Style, text: impl Display) -> String {
        paint(self.has_color(), style, text)
    }

    /// Writes a line to standard output.
    pub(crate) fn line(&self, text: impl Display) -> Result<(), Failure> {
        writeln!(io::stdout().lock(), "{text}").map_err(|error| Failure::output(&error))
    }

    /// Writes a text to standard output, to a terminal without letters that control it.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let text = if stdout.is_terminal() { Cow::Owned(visible_lines(text)) } else { Cow::Borrowed(text) };
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
    }

    /// Writes a JSON value and a newline to standard output.
    pub(crate) fn json(&self, value: &Value) -> Result<(), Failure> {
        self.line(visible_json(value))
    }

    /// Returns an empty table with these headers: columns apart by spaces, without borders, as wide as the terminal.
    pub(crate) fn table(&self, headers: &[&str]) -> Table {
        let mut table = Table::new();
        let header = |header: &&str| Cell::new(header).add_attribute(Attribute::Bold);
        table.load_preset(presets::NOTHING).set_header(headers.iter().map(header));
        // A terminal may have no size.
        if let Some(columns) = table.width().filter(|columns| *columns >= MIN_COLUMNS) {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
        }
        table.style_text_only();
        if self.has_color() {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        table
    }

    /// Writes a table to standard output.
    pub(crate) fn print(&self, table: Table) -> Result<(), Failure> {
        lines(table).iter().try_for_each(|line| self.line(line))
    }

    /// Writes a message to standard error, for information. With `--json` it is an object on its own line.
    pub(crate) fn note(&self, message: impl Display) {
        if self.is_json {
            return self.show(visible_json(&json!({ "note": message.to_string() })));
        }
        self.show(visible_lines(&message.to_string()));
    }

    /// Writes a line of painted text to standard error, with `--json` too.
    pub(crate) fn show(&self, line: impl Display) {
        // Without standard error there is no place to report it.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Writes a warning to standard error. With `--json` it is an object on its own line.
    pub(crate) fn warn(&self, message: impl Display) {
        if self.is_json {
            return self.show(visible_json(&json!({ "warning": message.to_string() })));
        }
        self.label(Style::Yellow, "warning:", message);
    }

    fn label(&self, style: Style, label: &str, message: impl Display) {
        let label = paint(self.has_error_color(), style, label);
        self.show(format_args!("{label} {}", visible_lines(&message.to_string())));
    }

    /// Returns the exit code of an act that is done, also if its result was not written.
    pub(crate) fn settle(&self, written: Result<(), Failure>, exit: Exit) -> Exit {
        match written {
            Ok(()) | Err(Failure::ClosedPipe) => {}
            Err(failure) => self.warn(failure),
        }
        exit
    }

    /// Writes a failure to standard error, and returns its exit code.
    pub(crate) fn report(&self, failure: &Failure) -> Exit {
        if let (Failure::Conflict { message, diff }, true) = (failure, self.is_json) {
            let error = json!({ "error": { "kind": failure.kind(), "message": message, "diff": diff } });
            self.show(visible_json(&error));
            return failure.exit();
        }
        let exit = self.report_as(failure.kind(), failure, failure.exit());
        if let Failure::Conflict { diff, .. } = failure {
            diff.lines().for_each(|line| self.note(line));
        }
        exit
    }

    /// Writes the error of a command line to standard error, or the help to standard output.
    pub(crate) fn report_parse_error(&self, error: &clap::Error) -> Exit {
        if !error.use_stderr() {
            let _ = error.print();
            return Exit::SUCCESS;
        }
        // It may contain arguments, which a script has from others.
        let message = error.render().to_string();
        if self.is_json {
            return self.report_as("usage", message.trim().trim_start_matches("error: "), Exit::USAGE);
        }
        self.show(visible_lines(message.trim_end()));
        Exit::USAGE
    }

    fn report_as(&self, kind: &str, message: impl Display, exit: Exit) -> Exit {
        if kind == "closed_pipe" {
            return exit;
        }
        if self.is_json {
            self.show(visible_json(&json!({ "error": { "kind": kind, "message": message.to_string() } })));
        } else {
            self.label(Style::Red, "error:", message);
        }
        exit
    }
}

impl Color {
    fn is_on(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                // As <https://no-color.org> has it: any value but an empty one.
                let has_colors = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                is_terminal && has_colors && env::var_os("TERM").is_none_or(|value| value != "dumb")
            }
        }
    }
}

fn paint(has_color: bool, style: Style, text: impl Display) -> String {
    let code = match style {
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Green => 32,
        Style::Yellow => 33,
        Style::Red => 31,
        Style::Cyan => 36,
    };
    if has_color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
}

/// The narrowest column that is readable.
const MIN_CELL: u16 = 8;

/// Returns the lines of a table. In a terminal that is too narrow for it each cell has a line.
pub(crate) fn lines(mut table: Table) -> Vec<String> {
    let needed = table.column_max_content_widths().into_iter().map(|width| width.min(MIN_CELL) + 2).sum::<u16>();
    let is_adapted = matches!(table.content_arrangement(), ContentArrangement::Dynamic);
    if is_adapted && table.width().is_some_and(|width| width < needed) {
        return cell_lines(&table);
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns a line for each cell that is not empty, with its header, and an empty line between rows.
fn cell_lines(table: &Table) -> Vec<String> {
    let headers: Vec<_> = table.header().into_iter().flat_map(Row::cell_iter).map(Cell::content).collect();
    let width = headers.iter().map(|header| header.chars().count()).max().unwrap_or(0);
    let of_row = |row: &Row| {
        let cells = headers.iter().zip(row.cell_iter().map(Cell::content)).filter(|(_, cell)| !cell.is_empty());
        cells.map(|(header, cell)| format!("{header:width$}  {cell}")).collect::<Vec<_>>()
    };
    table.row_iter().map(of_row).collect::<Vec<_>>().join(&String::new())
}

/// Returns a text of others without characters that control the terminal or the direction of text.
pub(crate) fn visible(text: &str) -> String {
    let is_harmless = |letter: char| letter == '\t' || !(letter.is_control() || is_format(letter));
    let escape =
        |letter: char| if is_harmless(letter) { letter.to_string() } else { letter.escape_default().to_string() };
    text.chars().map(escape).collect()
}

/// Returns a text of others of several lines, each as by [`visible`].
fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Returns whether Unicode has a letter in its category `Cf`, or as a separator of lines or paragraphs.
fn is_format(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Returns a JSON value as text that does not control the terminal either: such letters are escaped.
fn visible_json(value: &Value) -> String {
    let escape = |letter: char| {
        let mut units = [0; 2];
        let units = letter.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect::<String>()
    };
    let is_harmless = |letter: char| !(letter.is_control() || is_format(letter));
    let text = value.to_string();
    text.chars().map(|letter| if is_harmless(letter) { letter.to_string() } else { escape(letter) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of the columns had three letters.
    #[test]
    fn a_narrow_terminal_has_a_line_for_each_cell() {
        let output = Output { color: Color::Never, is_json: false };
        let table = |columns: u16| {
            let mut table = output.table(&["RULE", "ALLOWED/S", "DENIED/S", "LIMITERS", "LAST"]);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
            table.add_row(["user:{user_id}:search", "12.0", "", "2", "0 s ago"]).add_row(["mail", "0.5", "0", "1", ""]);
            lines(table)
        };
        let narrow = [
            "RULE       user:{user_id}:search",
            "ALLOWED/S  12.0",
            "LIMITERS   2",
            "LAST       0 s ago",
            "",
            "RULE       mail",
            "ALLOWED/S  0.5",
            "DENIED/S   0",
            "LIMITERS   1",
        ];
        assert_eq!(table(40), narrow);
        assert!(table(80)[1].starts_with("user:{user_id}:search  12.0 "));
    }

    #[test]
    fn letters_that_control_a_terminal_are_escaped_in_text_and_in_json() {
        let cases = [
            ("ein \"Prüf\"text\t日本 \\u{9b}", "ein \"Prüf\"text\t日本 \\u{9b}"),
            ("a\u{1b}[31m\u{7}\r\n", "a\\u{1b}[31m\\u{7}\\r\\n"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("\u{202e}\u{2066}\u{200b}\u{2028}\u{e0041}", "\\u{202e}\\u{2066}\\u{200b}\\u{2028}\\u{e0041}"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
            let json = visible_json(&json!([text]));
            assert!(!json.chars().any(|letter| letter.is_control() || is_format(letter)), "{json:?}");
            assert_eq!(serde_json::from_str::<Value>(&json).ok(), Some(json!([text])));
        }
        assert_eq!(visible_lines("a\n\u{9b}b\n"), "a\n\\u{9b}b\n");
    }
}
