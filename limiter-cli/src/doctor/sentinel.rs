//! The check `sentinel`.

use rate_limited::redis::{Value, cmd};

use super::finding::{Finding, Status};
use super::node::{Node, Refusal, field, text};
use super::permissions::{announcements, shown};
use super::servers::{Sentinel, Servers, Topology};
use super::slot_map::{HostPort, name_of};

const ADD_REPLICA: &str = "add a replica, which replaces the master when it fails";

/// Checks that the sentinels agree on a master that can be reached, have a quorum, and know a replica.
pub(super) async fn check(servers: &Servers) -> Finding {
    let Topology::Sentinels { master, sentinels } = &servers.topology else {
        return Finding::not_applicable("the URL names no sentinels");
    };
    let address = match agreed_address(master, sentinels) {
        Ok(address) => address,
        Err(finding) => return finding,
    };
    if servers.masters.is_empty() {
        let reason = servers.unreachable.first().map(|(_, refusal)| refusal.reason()).unwrap_or_default();
        return Finding::fail(
            format!("the master {address} cannot be reached: {reason}"),
            "check that the master runs, and that its address as the sentinels have it can be reached from here",
        );
    }
    let silent: Vec<_> = sentinels
        .iter()
        .filter_map(|sentinel| sentinel.reply.as_ref().err().map(|refusal| (&sentinel.name, refusal)))
        .map(|(name, refusal)| format!("{name} ({})", refusal.reason()))
        .collect();
    let connected = sentinels.iter().filter_map(|sentinel| Some(&sentinel.reply.as_ref().ok()?.0));
    let mut findings = Vec::new();
    for node in connected {
        findings.push((node.name.clone(), view_of(node, master, &address).await));
    }
    let views = Finding::of_servers(findings);
    if views.status == Status::Fail {
        return views;
    }
    if let Some((replica, refusal)) = servers.unreachable.first() {
        return Finding::warn(
            format!("the replica {replica} cannot be reached: {}; {}", refusal.reason(), views.finding),
            "permit connections to it: a failover may make it the master",
        );
    }
    if silent.is_empty() {
        return views;
    }
    Finding::warn(
        format!("sentinels that cannot be reached: {}; {}", silent.join(", "), views.finding),
        "start them, or write the sentinels that exist into the URL",
    )
}

/// Returns the address that all sentinels with a reply have for the master.
fn agreed_address(master: &str, sentinels: &[Sentinel]) -> Result<String, Finding> {
    let mut addresses: Vec<(&str, &HostPort)> = Vec::new();
    let mut problems = Vec::new();
    for sentinel in sentinels {
        match &sentinel.reply {
            Ok((_, Ok(Some(address)))) => addresses.push((&sentinel.name, address)),
            Ok((_, Ok(None))) => {
                return Err(Finding::fail(
                    format!("{} has no master named `{master}`", sentinel.name),
                    "write the name of its `sentinel monitor` setting into the URL",
                ));
            }
            Ok((_, Err(refusal))) | Err(refusal) => problems.push(format!("{} ({})", sentinel.name, refusal.reason())),
        }
    }
    let Some((first, address)) = addresses.first() else {
        return Err(Finding::fail(
            format!("no sentinel has replied with the address of the master: {}", problems.join(", ")),
            "check that the sentinels run, and permit `+sentinel|get-master-addr-by-name` to their user",
        ));
    };
    match addresses.iter().find(|(_, other)| other != address) {
        Some((other, of_other)) => Err(Finding::warn(
            format!("the sentinels disagree: {first} has {}, {other} has {}", name_of(address), name_of(of_other)),
            "wait until the failover is over, then check the logs of the sentinels",
        )),
        None => Ok(name_of(address)),
    }
}

/// Judges the quorum and the replicas as one sentinel knows them.
async fn view_of(sentinel: &Node, master: &str, address: &str) -> Finding {
    if let Err(refusal @ (Refusal::Command | Refusal::Pattern)) = sentinel.send(&announcements()).await {
        return without_announcements(&sentinel.user, &refusal);
    }
    let quorum = sentinel.send(cmd("SENTINEL").arg("ckquorum").arg(master)).await;
    let replicas = sentinel.send(cmd("SENTINEL").arg("replicas").arg(master)).await;
    judge(address, &quorum, &replicas)
}

fn without_announcements(user: &str, refusal: &Refusal) -> Finding {
    let rules = if *refusal == Refusal::Pattern { "&+switch-master" } else { "+subscribe" };
    Finding::fail(
        format!("the sentinels' user lacks {rules}: a failover is noticed late"),
        format!("on each sentinel: `ACL SETUSER {} {rules}`", shown(user)),
    )
}

fn judge(address: &str, quorum: &Result<Value, Refusal>, replicas: &Result<Value, Refusal>) -> Finding {
    let found = format!("the sentinels agree on the master {address}");
    let usable = match quorum {
        // OK 3 usable Sentinels. Quorum and failover authorization can be reached
        Ok(reply) => text(reply).and_then(|text| text.split(' ').nth(1)?.parse::<u32>().ok()),
        Err(Refusal::Server(code)) if code == "NOQUORUM" => {
            return Finding::fail(
                format!("{found}, and have no quorum: a master that fails is not replaced"),
                "start the other sentinels, or lower the quorum of `sentinel monitor`",
            );
        }
        Err(refusal) => {
            return Finding::unknown(
                format!("{found}; {}", refusal.of("SENTINEL CKQUORUM")),
                "permit `+sentinel|ckquorum +sentinel|replicas` to the sentinels' user of this check",
            );
        }
    };
    let usable = usable.map_or_else(|| "there is a quorum".to_owned(), |count| format!("{count} of them are a quorum"));
    let replicas = match replicas {
        Ok(Value::Array(replicas)) => &replicas[..],
        Ok(_) => &[],
        Err(refusal) => {
            return Finding::unknown(
                format!("{found}, and {usable}; {}", refusal.of("SENTINEL REPLICAS")),
                "permit `+sentinel|replicas` to the sentinels' user of this check",
            );
        }
    };
    let is_up = |replica: &&Value| !field(replica, "flags").is_some_and(|flags| flags.contains("down"));
    let up = replicas.iter().filter(is_up).count();
    let finding = format!("{found}, {usable}, and {up} of {} replicas are up", replicas.len());
    match up {
        0 => Finding::warn(finding, ADD_REPLICA),
        _ => Finding::ok(finding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorum_and_replicas_are_judged_as_far_as_they_are_known() {
        let quorum = || Ok(Value::SimpleString("OK 3 usable Sentinels. Quorum can be reached".to_owned()));
        let none = || Err(Refusal::Server("NOQUORUM".to_owned()));
        let replicas = |flags: &[&str]| {
            let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let one = |flags: &&str| Value::Map(vec![(bulk("flags"), bulk(flags))]);
            Ok(Value::Array(flags.iter().map(one).collect()))
        };
        let cases = [
            (quorum(), replicas(&["slave", "s_down,slave"]), Status::Ok, "1 of 2 replicas are up"),
            (quorum(), replicas(&["slave"]), Status::Ok, "3 of them are a quorum"),
            (quorum(), replicas(&["s_down,slave"]), Status::Warn, "0 of 1 replicas are up"),
            (quorum(), replicas(&[]), Status::Warn, "0 of 0 replicas are up"),
            (quorum(), Err(Refusal::Command), Status::Unknown, "SENTINEL REPLICAS is not permitted"),
            (Err(Refusal::Command), replicas(&["slave"]), Status::Unknown, "SENTINEL CKQUORUM is not permitted"),
            (none(), replicas(&["slave"]), Status::Fail, "have no quorum"),
        ];
        for (quorum, replicas, status, text) in cases {
            let finding = judge("h:1", &quorum, &replicas);
            assert!(finding.status == status && finding.finding.contains(text), "{text}: {finding:?}");
        }
    }

    #[test]
    fn a_user_who_is_no_word_is_not_written_into_a_command() {
        for (user, shown) in [("ana", "ana"), ("a b`\u{9b}", "<user>")] {
            let fix = without_announcements(user, &Refusal::Command).fix.expect("a fix");
            assert_eq!(fix, format!("on each sentinel: `ACL SETUSER {shown} +subscribe`"));
        }
    }

    #[test]
    fn sentinels_must_know_the_master_and_agree() {
        let silent =
            |name: &str| Sentinel { name: name.to_owned(), reply: Err(Refusal::NoReply("refused".to_owned())) };
        let finding = agreed_address("main", &[silent("a:1"), silent("b:1")]).expect_err("no reply");
        assert_eq!(finding.status, Status::Fail);
        assert!(finding.finding.ends_with("a:1 (refused), b:1 (refused)"), "{finding:?}");
    }
}
