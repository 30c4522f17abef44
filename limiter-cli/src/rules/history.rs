//! `limiter rules history` and `rollback`.

use comfy_table::{Cell, CellAlignment};
use rate_limited::{Limiter, SharedRules};
use serde_json::Value;

use super::list::version_json;
use super::publication::Publication;
use super::reading;
use crate::arguments::{HistoryArguments, RollbackArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, visible};
use crate::time_text;
use limiter_inspect::{DiffLine, diff};

/// The versions that the store keeps.
const KEPT_VERSIONS: usize = 100;

/// Lists the latest versions, newest first.
pub(super) async fn list(arguments: &HistoryArguments, shared: &SharedRules, output: &Output) -> Result<Exit, Failure> {
    let shown = usize::from(arguments.entries);
    // The one before the last is compared with it.
    let history = reading::history(shared, shown + 1).await?;
    if output.is_json() {
        let entries = history.iter().take(shown).map(|entry| {
            let mut fields = version_json(entry);
            fields.insert("toml".to_owned(), entry.toml.clone().into());
            Value::Object(fields)
        });
        output.json(&entries.collect())?;
        return Ok(Exit::SUCCESS);
    }
    if history.is_empty() {
        output.line("no shared rules are published")?;
        return Ok(Exit::SUCCESS);
    }
    let mut table = output.table(&["VERSION", "WHEN", "WHO", "LINES", "WHY"]);
    for (at, entry) in history.iter().enumerate().take(shown) {
        let lines = match history.get(at + 1) {
            Some(earlier) => changed_lines(&earlier.toml, &entry.toml),
            None if entry.version == 1 => changed_lines("", &entry.toml),
            None => "-".to_owned(),
        };
        let row = [time_text::with_age(entry.when), visible(&entry.who), lines, visible(&entry.why)];
        let mut cells = vec![Cell::new(entry.version).set_alignment(CellAlignment::Right)];
        cells.extend(row.into_iter().map(Cell::new));
        table.add_row(cells);
    }
    output.print(table)?;
    Ok(Exit::SUCCESS)
}

/// Publishes an earlier version again.
pub(super) async fn rollback(
    arguments: &RollbackArguments,
    limiter: &Limiter,
    output: &Output,
) -> Result<Exit, Failure> {
    let shared = &SharedRules::new(limiter);
    let history = reading::history(shared, KEPT_VERSIONS).await?;
    let (Some(newest), Some(oldest)) = (history.first(), history.last()) else {
        return Err(Failure::usage("`VERSION` must be one of the history, which is empty: publish rules first"));
    };
    let Some(wanted) = history.iter().find(|entry| entry.version == arguments.version) else {
        return Err(Failure::usage(format!(
            "`VERSION` must be one of the history, {} to {}, got {}: `limiter rules history` lists them",
            oldest.version, newest.version, arguments.version
        )));
    };
    let published = reading::read(shared).await?;
    let publication = Publication::new(limiter, shared, &published, &arguments.change, output).await;
    publication.publish(&wanted.toml).await
}

/// Returns the number of added and removed lines, such as `+2 -1`.
fn changed_lines(old: &str, new: &str) -> String {
    let lines = diff(old, new);
    let added = lines.iter().filter(|line| matches!(line, DiffLine::Added(_))).count();
    let removed = lines.iter().filter(|line| matches!(line, DiffLine::Removed(_))).count();
    format!("+{added} -{removed}")
}
