//! The connection to the store, by the options that all commands have.

use std::env;
use std::time::Duration;

use rate_limited::{Builder, Limiter, OnError};

use crate::arguments::GlobalArguments;
use crate::bounded_input;
use crate::failure::Failure;
use crate::output::Output;

/// The environment variable with the URL.
pub(crate) const URL_VARIABLE: &str = "RATE_LIMITED_URL";

/// The time in which the store must reply to a command. A person may be far away from it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// The store of a command: URL, prefix and secret. It is not connected yet.
///
/// It has no `Debug`: the URL may contain a password.
pub(crate) struct Connection {
    url: String,
    prefix: Option<String>,
    secret: Option<Vec<u8>>,
}

impl Connection {
    /// Reads the URL and the secret from the options, their files and the environment.
    pub(crate) fn from_arguments(arguments: &GlobalArguments, output: &Output) -> Result<Self, Failure> {
        let url = match (&arguments.url, &arguments.url_file) {
            (Some(url), _) => {
                warn_of_password("--url", url, &format!("{URL_VARIABLE} or `--url-file`"), output);
                url.clone()
            }
            (None, Some(file)) => bounded_input::read_line(file)?,
            (None, None) => match env::var(URL_VARIABLE) {
                Ok(url) => url,
                Err(env::VarError::NotUnicode(_)) => {
                    return Err(Failure::usage(format!(
                        "{URL_VARIABLE} must be UTF-8, got other bytes: write a URL such as redis://127.0.0.1:6379"
                    )));
                }
                Err(env::VarError::NotPresent) => String::new(),
            },
        };
        if url.is_empty() {
            return Err(Failure::usage(format!(
                "the URL of the store must be set, got none: set {URL_VARIABLE}, or write `--url-file FILE` or \
                 `--url redis://127.0.0.1:6379`"
            )));
        }
        let secret = arguments.hash_keys.as_deref().map(bounded_input::read_secret).transpose()?;
        Ok(Self { url, prefix: arguments.prefix.clone(), secret })
    }

    /// The URL. It may contain a password: never write it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The prefix of keys.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or("rl")
    }

    /// Returns whether the store is the memory of this process.
    pub(crate) fn is_memory(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// Returns the error of a command that needs a store which processes share, if this is the memory of this one.
    pub(crate) fn require_shared(&self, command: &str) -> Result<(), Failure> {
        if self.is_memory() {
            return Err(Failure::usage(format!(
                "the URL must be that of a Redis for `{command}`, got `memory:`, which ends with this process: write \
                 one such as redis://127.0.0.1:6379"
            )));
        }
        Ok(())
    }

    /// Returns the builder of a limiter with these options. Failures of the store are errors.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Limiter::builder().url(&self.url).on_error(OnError::Raise).deadline(DEADLINE).presence(false);
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        match &self.secret {
            Some(secret) => builder.hash_keys(secret),
            None => builder,
        }
    }

    /// Connects a limiter with these options.
    pub(crate) async fn limiter(&self) -> Result<Limiter, Failure> {
        Ok(self.builder().connect().await?)
    }
}

/// Warns of a password in an argument, with the options to use instead.
pub(crate) fn warn_of_password(option: &str, url: &str, others: &str, output: &Output) {
    if has_password(url) {
        output.warn(format_args!(
            "`{option}` contains a password, which all users of this machine can read in the list of processes: use {others}"
        ));
    }
}

/// Returns whether a URL contains a password: between `:` and `@` before the host, or in the query.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let in_authority = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    // `redis+unix:///path?user=…&pass=…`, `redis-sentinel://a,b/main?sentinel_password=…`
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut names = query.split('&').filter_map(|field| Some(field.split_once('=')?.0));
    in_authority || names.any(|name| ["pass", "password", "sentinel_password"].contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_before_the_host_and_in_the_query() {
        let cases = [
            ("redis://127.0.0.1:6379", false),
            ("redis://user@host:6379/3", false),
            ("redis://:secret@host", true),
            ("rediss://user:secret@host:6379", true),
            ("redis+unix:///run/redis.sock", false),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", true),
            ("redis://host/0#a:b@c", false),
            ("redis-sentinel://a,b/main?sentinel_user=s&sentinel_password=secret", true),
            ("redis-sentinel://user@a,b/main?sentinel_user=s", false),
        ];
        for (url, expected) in cases {
            assert_eq!(has_password(url), expected, "{url}");
        }
    }
}
