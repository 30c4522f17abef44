//! `limiter rules export`, `import`, `clear` and `diff`.

use rate_limited::Published;
use serde_json::json;

use super::list::version_json;
use super::publication::Publication;
use super::{diff_text, validity};
use crate::arguments::FileArguments;
use crate::bounded_input::{self, MAX_TEXT_BYTES};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// Reads a file of shared rules and checks it.
pub(super) fn read(arguments: &FileArguments) -> Result<String, Failure> {
    let text = bounded_input::read_text(&arguments.file, MAX_TEXT_BYTES)?;
    let name = bounded_input::name(&arguments.file);
    validity::check_written(&text).map_err(|failure| Failure::usage(format!("{name}: {failure}")))?;
    Ok(text)
}

/// Publishes a text without rules.
pub(super) async fn clear(publication: &Publication<'_>) -> Result<Exit, Failure> {
    publication.publish_after("# No shared rules.\n", Some("removes all shared rules")).await
}

/// Writes the text as it is.
pub(super) fn export(published: &Published, output: &Output) -> Result<Exit, Failure> {
    if output.is_json() {
        let mut fields = version_json(published);
        fields.insert("toml".to_owned(), published.toml.clone().into());
        output.json(&fields.into())?;
    } else if published.version == 0 {
        output.note("no shared rules are published");
    } else {
        output.text(&published.toml)?;
    }
    Ok(Exit::SUCCESS)
}

/// Writes the difference from the text in force to a file.
pub(super) fn diff(published: &Published, file: &str, output: &Output) -> Result<Exit, Failure> {
    let Published { version, toml, .. } = published;
    if output.is_json() {
        let diff = diff_text::plain(toml, file);
        output.json(&json!({ "version": version, "changed": toml != file, "diff": diff }))?;
        return Ok(Exit::SUCCESS);
    }
    let lines = diff_text::lines(toml, file, output);
    if lines.is_empty() {
        output.note(format_args!("no difference from version {version}"));
    }
    lines.iter().try_for_each(|line| output.line(line))?;
    Ok(Exit::SUCCESS)
}
