//! Users with few permissions: each missing one is named with the ACL rule that adds it.

use limiter_testkit::{Cluster, RedisServer, Sentinels};

use crate::{assert_keys_expire, doctor, doctor_with};

const OPERATIONS_PAGE: &str = include_str!("../../../docs/operations.md");

/// Returns the ACL rules that docs/operations.md gives this user.
fn documented_rules(user: &str) -> Vec<&'static str> {
    let start = format!("ACL SETUSER {user} on >password ");
    let rules = OPERATIONS_PAGE.lines().find_map(|line| line.strip_prefix(&start)).expect("a line for this user");
    rules.split(' ').collect()
}

fn without<'a>(rules: &[&'a str], rule: &str) -> Vec<&'a str> {
    rules.iter().copied().filter(|other| *other != rule).collect()
}

/// Replaces the ACL rules of the server's user `app`.
fn set_rules(server: &RedisServer, rules: &[&str]) {
    let command = [&["ACL", "SETUSER", "app", "reset", "on", ">s3cret"], rules].concat();
    assert_eq!(server.command(&command).text(), "OK");
}

fn server() -> RedisServer {
    RedisServer::builder().tcp().user_with_rules("app", "s3cret", "-@all").start()
}

#[test]
fn documented_permissions_suffice_and_unknown_is_no_failure() {
    let server = server();
    set_rules(&server, &documented_rules("limiter"));
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    findings.assert("permissions", "ok", "9 permissions", "");
    findings.assert("eviction", "unknown", "not permitted", "permit `+info`");
    findings.assert("evicted", "unknown", "INFO is not permitted", "permit `+info`");
    findings.assert("persistence", "unknown", "INFO is not permitted", "permit `+info`");
    findings.assert("clock", "ok", "this host", "");
    findings.assert("rules", "unknown", "the user may not read the shared rules", "permit `%R~rl-rules:*`");
    assert!(!findings.written.contains("s3cret"));
    assert_keys_expire(&server);

    let follower = [documented_rules("limiter"), documented_rules("rules")].concat();
    set_rules(&server, &follower);
    let findings = doctor(&server.url());
    findings.assert_fails_only(&[]);
    findings.assert("rules", "ok", "no rules were published", "");
}

#[test]
fn each_missing_permission_is_named_with_its_rule() {
    let server = server();
    let rules = documented_rules("limiter");
    for rule in rules.iter().filter(|rule| rule.starts_with(['+', '~'])) {
        set_rules(&server, &without(&rules, rule));
        let findings = doctor(&server.url());
        assert_eq!(findings.exit, Some(3), "{}", findings.written);
        let fix = format!("`ACL SETUSER app {rule}`");
        findings.assert("permissions", "fail", &format!("the user lacks {rule}"), &fix);
        assert_eq!(findings.of("permissions")["finding"], format!("the user lacks {rule}"));
    }
}

#[test]
fn all_missing_permissions_are_named_at_once() {
    let server = server();
    set_rules(&server, &["-@all", "~rl:*", "+script|load", "+evalsha", "+get", "+set"]);
    let findings = doctor(&server.url());
    findings.assert("permissions", "fail", "lacks +time +mget +setrange +pexpire +del", "");
    set_rules(&server, &["-@all", "+@all", "%R~rl:*"]);
    doctor(&server.url()).assert("permissions", "fail", "the user lacks ~rl:*", "ACL SETUSER app ~rl:*");
}

/// The rule of the fix is enough: the next run finds nothing more.
#[test]
fn the_rules_of_the_fix_solve_it() {
    let server = server();
    set_rules(&server, &["-@all"]);
    for _ in 0..2 {
        let findings = doctor(&server.url());
        let fix = findings.of("permissions")["fix"].as_str().unwrap_or_default().to_owned();
        let Some((_, rest)) = fix.split_once("`ACL SETUSER app ") else { break };
        let rules: Vec<_> = rest.split('`').next().unwrap_or_default().split(' ').collect();
        server.command(&[&["ACL", "SETUSER", "app"], &rules[..]].concat());
    }
    doctor(&server.url()).assert_fails_only(&[]);
}

#[test]
fn another_prefix_needs_its_own_pattern() {
    let server = server();
    set_rules(&server, &documented_rules("limiter"));
    let findings = doctor_with(&server.url(), &["--prefix", "shop"]);
    findings.assert("permissions", "fail", "the user lacks ~shop:*", "ACL SETUSER app ~shop:*");
}

#[test]
fn a_database_needs_select() {
    let server = server();
    set_rules(&server, &documented_rules("limiter"));
    let url = server.url() + "/1";
    let findings = doctor(&url);
    findings.assert("connect", "fail", "refused", "");
    findings.assert("permissions", "fail", "the user lacks +select", "ACL SETUSER app +select");
    set_rules(&server, &documented_rules("database"));
    doctor(&url).assert_fails_only(&[]);
}

#[test]
fn packed_rules_need_permissions_for_hashes() {
    let server = server();
    let all = documented_rules("packed");
    set_rules(&server, &all);
    doctor(&server.url()).assert("packed", "ok", "a limiter of this user may have packed rules", "");
    let of_calls = documented_rules("limiter");
    for rule in all.iter().filter(|rule| !of_calls.contains(rule)) {
        set_rules(&server, &without(&all, rule));
        let findings = doctor(&server.url());
        findings.assert_fails_only(&[]);
        let (status, outcome) = match *rule {
            "+hrandfield" => ("warn", "dead counts of packed rules stay with their hash"),
            _ => ("unknown", "calls of packed rules fail"),
        };
        let missing = format!("the user lacks {rule}: {outcome}");
        findings.assert(
            "packed",
            status,
            &missing,
            &format!("with packed rules, on each server: `ACL SETUSER app {rule}`"),
        );
    }
    // A shared rule is packed, so its calls do fail.
    let rules = [&of_calls[..], &documented_rules("rules")].concat();
    set_rules(&server, &rules);
    server.command(&["SET", "rl-rules:{rules}:version", &format!("1 {}", "0".repeat(40))]);
    server.command(&["SET", "rl-rules:{rules}:toml", "[rules.a]\nlimit = '5/s'\npacked = 16384\n"]);
    let missing = "the user lacks ~rl#* +hget +hset +hdel +pttl +hrandfield: calls of packed rules fail";
    doctor(&server.url()).assert("packed", "fail", missing, "ACL SETUSER app ~rl#* +hget");
    assert!(!server.all_keys().iter().any(|key| key.contains('#')), "nothing is written");
}

#[test]
fn limiters_need_permissions_for_heartbeats() {
    let server = server();
    let (needed, heartbeats) = (documented_rules("limiter"), documented_rules("live"));
    let beside: Vec<_> = heartbeats.iter().copied().filter(|rule| !needed.contains(rule)).collect();
    let all = [&needed[..], &beside[..]].concat();
    set_rules(&server, &all);
    doctor(&server.url()).assert("heartbeats", "ok", "a limiter of this user is listed", "");
    assert!(!server.all_keys().iter().any(|key| key.contains("-live:")), "nothing is written");
    for rule in &beside {
        set_rules(&server, &without(&all, rule));
        let findings = doctor(&server.url());
        findings.assert_fails_only(&[]);
        let missing = format!("the user lacks {rule}: its limiters are not listed as instances");
        findings.assert("heartbeats", "warn", &missing, &format!("`ACL SETUSER app {rule}`, or "));
    }
    set_rules(&server, &needed);
    let missing = format!("the user lacks {}: ", beside.join(" "));
    doctor(&server.url()).assert("heartbeats", "warn", &missing, &beside.join(" "));
}

#[test]
fn limiters_with_activity_need_permissions_for_it() {
    let server = server();
    let (needed, activity) = (documented_rules("limiter"), documented_rules("activity"));
    let beside: Vec<_> = activity.iter().copied().filter(|rule| !needed.contains(rule)).collect();
    let all = [&needed[..], &beside[..]].concat();
    set_rules(&server, &all);
    doctor(&server.url()).assert("activity", "ok", "a limiter of this user may write its activity", "");
    assert!(!server.all_keys().iter().any(|key| key.contains("-live:")), "nothing is written");
    for rule in &beside {
        set_rules(&server, &without(&all, rule));
        let findings = doctor(&server.url());
        findings.assert_fails_only(&[]);
        let missing = format!("the user lacks {rule}: its limiters write no activity");
        findings.assert("activity", "unknown", &missing, &format!("`ACL SETUSER app {rule}`"));
    }
}

#[test]
fn processes_that_wait_for_slots_need_permissions_for_notices() {
    let server = server();
    let (needed, notices) = (documented_rules("limiter"), ["&rl:notices:*", "+publish", "+subscribe"]);
    let all = [&needed[..], &notices[..]].concat();
    set_rules(&server, &all);
    doctor(&server.url()).assert("notices", "ok", "processes that wait for slots are told", "");
    for rule in notices {
        set_rules(&server, &without(&all, rule));
        let findings = doctor(&server.url());
        findings.assert_fails_only(&[]);
        let missing = format!("the user lacks {rule}: processes that wait for slots poll every 50 ms");
        findings.assert("notices", "warn", &missing, &format!("`ACL SETUSER app {rule}`"));
    }
    set_rules(&server, &needed);
    let missing = "the user lacks +publish +subscribe: ";
    doctor(&server.url()).assert("notices", "warn", missing, "ACL SETUSER app +publish +subscribe");
}

#[test]
fn each_node_of_a_cluster_has_its_own_users() {
    let cluster = Cluster::builder().masters_only().user_with_rules("app", "s3cret", "-@all").start();
    let rules = documented_rules("cluster");
    let set_everywhere =
        |rules: &[&str]| cluster.masters().into_iter().for_each(|node| set_rules(cluster.server(node), rules));
    set_everywhere(&rules);
    doctor(&cluster.url()).assert("permissions", "ok", "3 servers: the user has the 11 permissions", "");

    let last = cluster.masters()[2];
    set_rules(cluster.server(last), &without(&rules, "+setrange"));
    let expected = format!("{}: the user lacks +setrange", cluster.address(last));
    doctor(&cluster.url()).assert("permissions", "fail", &expected, "ACL SETUSER app +setrange");

    for (rule, cluster_status) in [("+asking", "warn"), ("+cluster|slots", "fail")] {
        set_everywhere(&without(&rules, rule));
        let findings = doctor(&cluster.url());
        findings.assert("permissions", "fail", &format!("the user lacks {rule}"), &format!("ACL SETUSER app {rule}"));
        findings.assert("cluster", cluster_status, "", "");
    }
}

#[test]
fn the_user_of_sentinels_is_checked_apart() {
    let sentinels = Sentinels::start();
    let rules = documented_rules("sentinels");
    let set_everywhere = |rules: &[&str]| {
        sentinels.sentinels().into_iter().for_each(|sentinel| set_rules(sentinels.sentinel(sentinel), rules));
    };
    let url = sentinels.url() + "?sentinel_user=app&sentinel_password=s3cret";

    set_everywhere(&rules);
    let findings = doctor(&url);
    findings.assert_fails_only(&[]);
    let known = format!("the sentinels agree on the master {}", sentinels.address(sentinels.master()));
    findings.assert("sentinel", "unknown", &known, "permit `+sentinel|ckquorum +sentinel|replicas`");
    assert!(!findings.written.contains("s3cret"), "{}", findings.written);

    let more = [&rules[..], &["+sentinel|ckquorum", "+sentinel|replicas"]].concat();
    set_everywhere(&more);
    doctor(&url).assert("sentinel", "ok", "3 of them are a quorum", "");

    for rule in ["+subscribe", "&+switch-master", "+sentinel|get-master-addr-by-name"] {
        set_everywhere(&without(&more, rule));
        let findings = doctor(&url);
        findings.assert("sentinel", "fail", "", rule);
        assert_eq!(findings.exit, Some(3), "{}", findings.written);
    }
}

/// An operator met one missing permission after the other.
#[test]
fn the_permissions_of_an_operator_are_all_named_at_once() {
    let server = server();
    let mut users = [documented_rules("operator"), documented_rules("lister"), documented_rules("watcher")].concat();
    users.retain(|rule| rule.starts_with(['+', '~']));
    users.sort_unstable();
    users.dedup();
    users.insert(0, "-@all");
    set_rules(&server, &users);
    let operator = || doctor_with(&server.url(), &["--operator"]);
    let findings = operator();
    findings.assert_fails_only(&[]);
    findings.assert("operator", "ok", "the user publishes shared rules, lists limiters and reads activity", "");
    assert_keys_expire(&server);
    set_rules(&server, &without(&without(&without(&users, "+xrevrange"), "+lpush"), "+time"));
    let findings = operator();
    assert_eq!(findings.exit, Some(3), "{}", findings.written);
    let lacks = "the user lacks +time +lpush to publish rules, +time to list limiters, +xrevrange to read activity";
    findings.assert("operator", "fail", lacks, "`ACL SETUSER app +time +lpush +xrevrange`");
    set_rules(&server, &without(&users, "~rl-live:*"));
    let findings = operator();
    findings.assert_fails_only(&[]);
    findings.assert(
        "operator",
        "warn",
        "the user lacks ~rl-live:* to list limiters, ~rl-live:* to read",
        "app ~rl-live:*`",
    );
    set_rules(&server, &["-@all", "+script|load"]);
    let fix = operator().of("operator")["fix"].as_str().unwrap_or_default().to_owned();
    let rules = fix.split("ACL SETUSER app ").nth(1).and_then(|rest| rest.split('`').next()).expect("the rules");
    server.command(&[&["ACL", "SETUSER", "app"], &rules.split(' ').collect::<Vec<_>>()[..]].concat());
    operator().assert("operator", "ok", "", "");
}
