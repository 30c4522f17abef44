//! The Redis commands of the shared rules.

use redis::Cmd;

use super::{NewText, StoredText};
use crate::store::redis::naming::RulesKeys;

/// The script that publishes a text.
pub(super) const PUBLISH: &str = concat!(include_str!("lua/history.lua"), include_str!("lua/publish.lua"));
/// The script that puts a text back.
pub(super) const RESTORE: &str = concat!(include_str!("lua/history.lua"), include_str!("lua/restore.lua"));
/// The most entries of the history.
pub(super) const MAX_HISTORY_ENTRIES: usize = 100;
/// The most bytes of the history.
pub(super) const MAX_HISTORY_BYTES: usize = 8 << 20;

pub(super) fn read_version(keys: &RulesKeys) -> Cmd {
    let mut command = redis::cmd("GET");
    command.arg(&keys.version);
    command
}

pub(super) fn read_text(keys: &RulesKeys) -> Cmd {
    let mut command = redis::cmd("MGET");
    command.arg(&keys.version).arg(&keys.text);
    command
}

/// The command for the first entries of a list, 1 or more: for the newest ones of the history. It fails for a key of
/// another type.
pub(super) fn read_list(key: &str, max_entries: usize) -> Cmd {
    let last = max_entries.clamp(1, MAX_HISTORY_ENTRIES) - 1;
    let mut command = redis::cmd("LRANGE");
    command.arg(key).arg(0).arg(last);
    command
}

pub(super) fn load(script: &str) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script);
    command
}

/// The call of the script that publishes, which has this digest.
pub(super) fn publish(keys: &RulesKeys, digest: &str, text: &NewText) -> Cmd {
    let NewText { based_on, toml, who, why } = text;
    let mut command = call_of(keys, digest);
    command.arg(based_on).arg(toml).arg(who).arg(why).arg(MAX_HISTORY_ENTRIES).arg(MAX_HISTORY_BYTES);
    command
}

/// The call of the script that puts a text back, which has this digest.
pub(super) fn restore(keys: &RulesKeys, digest: &str, StoredText { version, toml }: &StoredText) -> Cmd {
    let mut command = call_of(keys, digest);
    command.arg(version.number).arg(&version.digest).arg(version.published_micros).arg(toml);
    command
}

fn call_of(keys: &RulesKeys, digest: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(3).arg(&keys.version).arg(&keys.text).arg(&keys.history);
    command
}
