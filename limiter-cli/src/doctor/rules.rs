//! The check `rules`.

use rate_limited::{ErrorKind, Limiter, SharedRules};

use super::finding::Finding;
use crate::connection::Connection;

/// Returns whether the store has shared rules. `None` if the user may not read them.
pub(super) async fn are_published(limiter: Option<&Limiter>) -> Option<bool> {
    SharedRules::new(limiter?).read().await.ok().map(|published| published.version > 0)
}

/// Returns whether a shared rule is packed. False if there are none that the user may read.
pub(super) async fn are_packed(connection: &Connection) -> bool {
    let follower = connection.builder().shared_rules().connect().await;
    follower.is_ok_and(|follower| follower.rules().iter().any(|rule| rule.packed().is_some()))
}

/// Reads the shared rules as a process does that follows them, with the permissions of such a process.
pub(super) async fn check(limiter: &Limiter, connection: &Connection) -> Finding {
    let follower = match connection.builder().shared_rules().connect().await {
        Ok(follower) => follower,
        Err(error) if error.kind() == ErrorKind::Refused => {
            let prefix = connection.prefix();
            return Finding::unknown(
                "the user may not read the shared rules",
                format!(
                    "where processes follow them, permit `%R~{prefix}-rules:*`, or with Redis 6.2 `~{prefix}-rules:*`"
                ),
            );
        }
        Err(error) => {
            return Finding::fail(
                format!("the shared rules cannot be read: {error}"),
                "check the other findings, and the server's log",
            );
        }
    };
    let Some(error) = follower.shared_rules_error() else {
        return Finding::ok(format!("version {} of the shared rules is valid", follower.shared_rules_version()));
    };
    match SharedRules::new(limiter).read().await {
        Ok(published) if published.version == 0 => Finding::ok("no rules were published"),
        _ => Finding::fail(
            format!("{error}; processes keep their last good rules"),
            "publish another text: `limiter rules rollback VERSION`, `limiter rules edit` or `limiter rules import FILE`",
        ),
    }
}
