//! The author of a change.

use std::env;
use std::fs;

/// Returns the user and the host of this process, such as `ana@web-1`.
pub(super) fn here() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(variable);
    let host = || fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|host| host.trim().to_owned());
    let host = host().or_else(|| ["HOSTNAME", "COMPUTERNAME", "HOST"].into_iter().find_map(variable));
    format!("{}@{}", user.as_deref().unwrap_or("unknown"), host.as_deref().unwrap_or("unknown"))
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
