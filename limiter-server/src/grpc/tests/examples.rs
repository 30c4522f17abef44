//! The examples of the README of envoyproxy/ratelimit: what each request gets.

use super::*;

/// A file, and requests to it: the descriptors, the number of requests that are admitted, and the first denial.
struct Example {
    yaml: &'static str,
    requests: &'static [(&'static [&'static str], u32, &'static str)],
}

const EXAMPLES: [Example; 9] = [
    // Two values of one key.
    Example {
        yaml: "domain: d\ndescriptors: [
            {key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}},
            {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 500}}]",
        requests: &[
            (&["database=users"], 500, "OVER: OVER 0/500 SECOND"),
            (&["database=default"], 500, "OVER: OVER 0/500 SECOND"),
            (&["database=other"], 1_000, ""),
        ],
    },
    // Each number has limits of its own, for all messages and for those of one kind.
    Example {
        yaml: "domain: d\ndescriptors: [
            {key: message_type, value: marketing, descriptors: [{key: to_number, rate_limit: {unit: day, requests_per_unit: 5}}]},
            {key: to_number, rate_limit: {unit: day, requests_per_unit: 100}}]",
        requests: &[
            (&["message_type=marketing to_number=1", "to_number=1"], 5, "OVER: OVER 0/5 DAY, OK 95/100 DAY"),
            (&["to_number=1"], 95, "OVER: OVER 0/100 DAY"),
            (&["message_type=marketing to_number=2", "to_number=2"], 5, "OVER: OVER 0/5 DAY, OK 95/100 DAY"),
            (&["message_type=marketing"], 200, ""),
        ],
    },
    // A value comes before its key alone, and 0 denies.
    Example {
        yaml: "domain: d\ndescriptors: [
            {key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}},
            {key: remote_address, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}]",
        requests: &[
            (&["remote_address=50.0.0.1"], 10, "OVER: OVER 0/10 SECOND"),
            (&["remote_address=50.0.0.2"], 10, "OVER: OVER 0/10 SECOND"),
            (&["remote_address=50.0.0.5"], 0, "OVER: OVER 0/0 SECOND"),
        ],
    },
    // A request must be as deep as the limit.
    Example {
        yaml: "domain: d\ndescriptors: [{key: key, value: value, rate_limit: {requests_per_unit: 300, unit: second}}]",
        requests: &[(&["key=value subkey=subvalue"], 400, ""), (&["key=value"], 300, "OVER: OVER 0/300 SECOND")],
    },
    Example {
        yaml: "domain: d\ndescriptors: [{key: key, value: value, descriptors: [
            {key: subkey, rate_limit: {requests_per_unit: 300, unit: second}}]}]",
        requests: &[(&["key=value subkey=subvalue"], 300, "OVER: OVER 0/300 SECOND"), (&["key=value"], 400, "")],
    },
    // No limit at all, and another one.
    Example {
        yaml: "domain: d\ndescriptors: [{key: ldap, rate_limit: {unlimited: true}},
            {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}]",
        requests: &[(&["ldap=1"], 400, ""), (&["azure=1"], 100, "OVER: OVER 0/100 MINUTE")],
    },
    // One user is never denied, another one is.
    Example {
        yaml: "domain: d\ndescriptors: [{key: service, descriptors: [
            {key: user, value: user-a, rate_limit: {requests_per_unit: 10, unit: second}, shadow_mode: true},
            {key: user, value: user-b, rate_limit: {requests_per_unit: 20, unit: second}}]}]",
        requests: &[
            (&["service=auth-service user=user-a"], 100, ""),
            (&["service=auth-service user=user-b"], 20, "OVER: OVER 0/20 SECOND"),
        ],
    },
    // The second limit replaces the first where both match, which takes nothing of it.
    Example {
        yaml: "domain: d\ndescriptors: [
            {key: key_1, value: value_1, descriptors: [{key: user, value: bkthomps,
              rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}}]},
            {key: key_2, value: value_2, descriptors: [{key: user, value: bkthomps,
              rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 10, unit: second}}]}]",
        requests: &[
            (&["key_1=value_1 user=bkthomps", "key_2=value_2 user=bkthomps"], 10, "OVER: OK, OVER 0/10 SECOND"),
            (&["key_1=value_1 user=bkthomps"], 5, "OVER: OVER 0/5 SECOND"),
            (&["key_2=value_2 user=bkthomps"], 0, "OVER: OVER 0/10 SECOND"),
        ],
    },
    // Detailed metrics change no limit. Each value of a beginning is counted apart.
    Example {
        yaml: "domain: d\ndescriptors: [
            {key: key1, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}},
            {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 20}},
            {key: key2, value: value*, rate_limit: {unit: minute, requests_per_unit: 20}}]",
        requests: &[
            (&["key1=unspecified"], 10, "OVER: OVER 0/10 MINUTE"),
            (&["key1=unspecified2"], 10, "OVER: OVER 0/10 MINUTE"),
            (&["key1=value1"], 20, "OVER: OVER 0/20 MINUTE"),
            (&["key2=value_1"], 20, "OVER: OVER 0/20 MINUTE"),
            (&["key2=value_2"], 20, "OVER: OVER 0/20 MINUTE"),
            (&["key2=other"], 100, ""),
        ],
    },
];

#[tokio::test]
async fn the_examples_of_envoys_service_limit_as_there() {
    for (number, Example { yaml, requests }) in (1..).zip(&EXAMPLES) {
        let limits = Limits::new(yaml);
        for (descriptors, admitted, denial) in *requests {
            for sent in 0..*admitted {
                let answer = limits.send(descriptors).await;
                assert!(answer.starts_with("OK"), "{number}: {descriptors:?} after {sent}: {answer}");
            }
            if !denial.is_empty() {
                assert_eq!(limits.send(descriptors).await, *denial, "{number}: {descriptors:?}");
            }
        }
    }
    let unlimited = Limits::new(EXAMPLES[5].yaml);
    assert_eq!(unlimited.send(&["ldap=1", "azure=1", "other=1"]).await, "OK: OK unlimited, OK 99/100 MINUTE, OK");
}
