//! `limiter rules edit`.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus};

use tokio::task;

use super::publication::Publication;
use super::{confirmation, validity};
use crate::bounded_input::{self, MAX_TEXT_BYTES};
use crate::exit::Exit;
use crate::failure::Failure;

/// Opens the text in an editor, again as long as it has a mistake, and publishes it.
///
/// A changed text that is neither published nor discarded stays in its file.
pub(super) async fn run(publication: &Publication<'_>) -> Result<Exit, Failure> {
    let published = &publication.published.toml;
    let copy = EditedCopy::new(published).map_err(|error| Failure::System(error.to_string()))?;
    // From now on SIGINT is for the editor, which has the terminal: it does not end this process.
    let _interrupts = confirmation::take_interrupts();
    let result = match edited_text(&copy, publication).await {
        Ok(Some(text)) => publication.publish(&text).await,
        Ok(None) => {
            copy.delete();
            return Err(Failure::usage("nothing was published: the text was discarded"));
        }
        Err(failure) => Err(failure),
    };
    if result.is_ok() && !publication.change.dry_run || copy.has(published) {
        copy.delete();
    } else if copy.path.exists() {
        publication.output.note(format_args!("the edited text is in {}", copy.path.display()));
    }
    result
}

/// Returns the text without a mistake. `None` if it is discarded.
async fn edited_text(copy: &EditedCopy, publication: &Publication<'_>) -> Result<Option<String>, Failure> {
    loop {
        open(&copy.path).await?;
        let mistake = match copy.read() {
            Ok(text) => return Ok(Some(text)),
            Err(mistake) => mistake,
        };
        publication.output.note(format_args!("{mistake}"));
        let answer = confirmation::answer("Press Enter to edit the text again, or write q to discard it:").await?;
        let Some(answer) = answer else {
            return Err(Failure::usage("nothing was published: the input ended before an answer"));
        };
        if ["q", "quit"].contains(&&*answer.to_lowercase()) {
            return Ok(None);
        }
    }
}

/// A copy of the text for the editor. It stays until it is deleted, so no failure loses what was written.
struct EditedCopy {
    path: PathBuf,
}

impl EditedCopy {
    fn new(text: &str) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = env::temp_dir().join(format!("limiter-rules-{}-{number}.toml", process::id()));
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            {
                use std::os::unix::fs::OpenOptionsExt;
                // Overrides may contain personal data.
                options.mode(0o600);
            }
            match options.open(&path) {
                Ok(mut file) => {
                    let copy = Self { path };
                    file.write_all(text.as_bytes()).inspect_err(|_| copy.delete())?;
                    return Ok(copy);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether the file has this text.
    fn has(&self, text: &str) -> bool {
        bounded_input::read_text(&self.path, MAX_TEXT_BYTES).is_ok_and(|found| found == text)
    }

    fn delete(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn read(&self) -> Result<String, Failure> {
        let text = bounded_input::read_text(&self.path, MAX_TEXT_BYTES)?;
        validity::check_written(&text)?;
        Ok(text)
    }
}

async fn open(path: &Path) -> Result<(), Failure> {
    let chosen = ["VISUAL", "EDITOR"].into_iter().find_map(|name| env::var(name).ok().filter(|name| !name.is_empty()));
    let editor = chosen.unwrap_or_else(|| if cfg!(windows) { "notepad" } else { "vi" }.to_owned());
    let mut command = command(&editor, path);
    let status =
        task::spawn_blocking(move || command.status()).await.map_err(io::Error::other).and_then(|status| status);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::usage(format!("nothing was published: the editor `{editor}` ended with {}", end(status))))
        }
        Err(error) => {
            Err(Failure::usage(format!("the editor `{editor}` was not started: {error}: set VISUAL or EDITOR")))
        }
    }
}

/// Returns the command of an editor, which may have arguments.
fn command(editor: &str, path: &Path) -> Command {
    if cfg!(windows) {
        let mut words = editor.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or(editor));
        command.args(words).arg(path);
        return command;
    }
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg(editor).arg(path);
    command
}

fn end(status: ExitStatus) -> String {
    status.code().map_or("a signal".to_owned(), |code| format!("code {code}"))
}
