//! The file of limits, which is checked each second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::rules::Rules;

/// The rules in force, which change with the file.
pub(crate) type CurrentRules = watch::Receiver<Arc<Rules>>;

/// The file of limits.
pub(crate) struct RulesFile {
    path: PathBuf,
    /// The file's text at the last check, or the error.
    text: Result<String, String>,
    rules: watch::Sender<Arc<Rules>>,
}

impl RulesFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or is broken.
    pub(crate) async fn open(path: PathBuf) -> Result<(Self, CurrentRules), String> {
        let text = read(&path).await;
        let parsed = text.as_deref().map_err(Clone::clone).and_then(Rules::parse);
        let rules = parsed.map_err(|error| format!("{}: {error}", path.display()))?;
        let (rules, current) = watch::channel(Arc::new(rules));
        Ok((Self { path, text, rules }, current))
    }

    /// Checks the file each second.
    pub(crate) async fn watch(mut self) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            seconds.tick().await;
            self.check().await;
        }
    }

    /// Puts the file's rules in force if its text has changed. A broken file changes nothing and is logged once.
    pub(crate) async fn check(&mut self) {
        let text = read(&self.path).await;
        if text == self.text {
            return;
        }
        self.text = text;
        match self.text.as_deref().map_err(Clone::clone).and_then(Rules::parse) {
            Ok(rules) => {
                self.rules.send_replace(Arc::new(rules));
                tracing::info!(file = %self.path.display(), "new limits are in force");
            }
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "the file of limits is broken: limits stay as they are");
            }
        }
    }
}

async fn read(path: &PathBuf) -> Result<String, String> {
    tokio::fs::read_to_string(path).await.map_err(|error| error.to_string())
}
