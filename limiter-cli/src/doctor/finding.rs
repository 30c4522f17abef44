//! The result of a check, and the result of several servers together.

/// The result of a check in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Ok,
    /// The user lacks a permission that only this check needs, or the check does not apply.
    Unknown,
    /// Limits hold, and there is a risk.
    Warn,
    /// Calls fail, or limits do not hold.
    Fail,
}

impl Status {
    /// The text for tables and JSON.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of a check: its status, the facts, and the remedy if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) status: Status,
    pub(super) finding: String,
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn ok(finding: impl Into<String>) -> Self {
        Self { status: Status::Ok, finding: finding.into(), fix: None }
    }

    pub(super) fn warn(finding: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Warn, finding: finding.into(), fix: Some(fix.into()) }
    }

    pub(super) fn fail(finding: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Fail, finding: finding.into(), fix: Some(fix.into()) }
    }

    pub(super) fn unknown(finding: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: Status::Unknown, finding: finding.into(), fix: Some(fix.into()) }
    }

    /// Creates the finding of a check that does not apply to this store.
    pub(super) fn not_applicable(reason: &str) -> Self {
        Self { status: Status::Unknown, finding: format!("not applicable: {reason}"), fix: None }
    }

    /// Creates the finding of a check that needs a connection.
    pub(super) fn no_connection() -> Self {
        let finding = "not checked: there is no connection".to_owned();
        Self { status: Status::Unknown, finding, fix: None }
    }

    /// Combines the findings of several servers, each with the server's name.
    ///
    /// The worst status counts, and only servers of that status are described. A single server is not named.
    pub(super) fn of_servers(findings: Vec<(String, Self)>) -> Self {
        let total = findings.len();
        let worst = findings.iter().map(|(_, finding)| finding.status).max();
        let mut groups: Vec<(Vec<String>, Self)> = Vec::new();
        for (server, finding) in findings.into_iter().filter(|(_, finding)| Some(finding.status) == worst) {
            match groups.iter_mut().find(|(_, known)| *known == finding) {
                Some((servers, _)) => servers.push(server),
                None => groups.push((vec![server], finding)),
            }
        }
        let Some((servers, first)) = groups.first() else { return Self::no_connection() };
        if servers.len() == total {
            let finding =
                if total == 1 { first.finding.clone() } else { format!("{total} servers: {}", first.finding) };
            return Self { finding, ..first.clone() };
        }
        let texts: Vec<_> =
            groups.iter().map(|(servers, finding)| format!("{}: {}", servers.join(", "), finding.finding)).collect();
        let mut fixes: Vec<_> = groups.iter().filter_map(|(_, finding)| finding.fix.clone()).collect();
        fixes.dedup();
        let fix = (!fixes.is_empty()).then(|| fixes.join("; "));
        Self { status: first.status, finding: texts.join("; "), fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(findings: &[(&str, Finding)]) -> Finding {
        Finding::of_servers(findings.iter().map(|(name, finding)| ((*name).to_owned(), finding.clone())).collect())
    }

    #[test]
    fn the_worst_server_counts_and_is_named_unless_all_agree() {
        let (ok, warn) = (Finding::ok("fine"), Finding::warn("hot", "cool it"));
        assert_eq!(of(&[("a:1", ok.clone())]), ok);
        assert_eq!(of(&[("a:1", ok.clone()), ("b:1", ok.clone())]).finding, "2 servers: fine");
        let mixed = of(&[("a:1", ok), ("b:1", warn.clone()), ("c:1", warn.clone())]);
        assert_eq!(mixed, Finding::warn("b:1, c:1: hot", "cool it"));
        let fail = Finding::fail("gone", "start it");
        assert_eq!(of(&[("a:1", warn), ("b:1", fail)]), Finding::fail("b:1: gone", "start it"));
        assert_eq!(of(&[]), Finding::no_connection());
        let different = of(&[("a:1", Finding::ok("7.0")), ("b:1", Finding::ok("7.2"))]);
        assert_eq!(different, Finding::ok("a:1: 7.0; b:1: 7.2"));
    }
}
