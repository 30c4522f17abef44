//! Rules of layers: settings by name, and overrides by the pieces of keys.

use rate_limited::tower::{ClientIp, Header, Method, Missing, RateLimitLayer, RequestKey};
use rate_limited::{ErrorKind, Key, KeyMatch, Limiter, Mode, Rule, RuleSet};

use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};

use super::{Served, counted, field, limit, limiter, request, request_of, send, statuses};

#[tokio::test]
async fn a_layer_is_listed_when_it_is_made() {
    let limiter = Limiter::memory();
    let rule_of = |name: &str| limiter.rules().into_iter().find(|rule| rule.name() == name);
    assert!(rule_of("listed layer").is_none());
    let _layer = RateLimitLayer::new("listed layer", limit("7/10s"));
    assert_eq!(rule_of("listed layer").expect("it is made").attribute_limits(), ["7/10s"]);
}

#[tokio::test]
async fn settings_by_name_replace_those_of_the_layer() {
    let (limiter, _) = limiter();
    let service = counted(&RateLimitLayer::new("set", limit("9/1m")).limiter(limiter.clone()), &Served::default());
    let set = |rule: Rule| limiter.set_rules(RuleSet::new().rule("set", rule)).expect("valid");
    set(Rule::new().limit(limit("1/1h")));
    assert_eq!(statuses(&service, [request_of("192.0.2.1"), request_of("192.0.2.1")]).await, [200, 429]);
    let denied = send(&service, request_of("192.0.2.1")).await;
    assert_eq!(field(&denied, "ratelimit-policy"), [r#""set";q=1;w=3600"#]);
    for (mode, status) in [(Mode::Shadow, 200), (Mode::Off, 200), (Mode::Deny, 429)] {
        set(Rule::new().limit(limit("1/1h")).mode(mode));
        let response = send(&service, request_of("192.0.2.1")).await;
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "ratelimit"), [""; 0], "{mode:?}");
    }
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert_eq!(field(&send(&service, request_of("192.0.2.9")).await, "ratelimit"), [r#""set";r=8;t=60"#]);
}

/// As in a text of rules.
#[tokio::test]
async fn limits_of_a_layer_on_one_counter_count_once() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("twice", limit("10/1m")).limit(limit("4/1m")).limiter(limiter.clone());
    let service = counted(&layer, &Served::default());
    let requests = || (0..6).map(|_| request_of("192.0.2.1"));
    assert_eq!(statuses(&service, requests()).await, [200, 200, 200, 200, 429, 429]);
    let rule = Rule::new().limit(limit("10/1h")).limit(limit("4/1h"));
    limiter.set_rules(RuleSet::new().rule("twice", rule)).expect("valid");
    assert_eq!(statuses(&service, requests()).await, [200, 200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn overrides_match_by_the_names_of_the_pieces() {
    let (limiter, _) = limiter();
    let api_key = || Header::new("x-api-key").or(ClientIp::peer());
    let layer = RateLimitLayer::new("parts", limit("1/1m")).limiter(limiter.clone()).key((api_key(), ClientIp::peer()));
    let service = counted(&layer, &Served::default());
    let deny = || Rule::new().mode(Mode::Deny);
    let rule = Rule::new()
        .overriding(KeyMatch::parts([("x-api-key", "stolen")]), deny())
        .overriding(KeyMatch::parts([("ip2", "192.0.2.66")]), deny());
    limiter.set_rules(RuleSet::new().rule("parts", rule)).expect("valid");
    let with_key = |peer, key: &'static str| request(peer, "/", &[("x-api-key", key)]);
    let requests = [with_key("192.0.2.1:1", "stolen"), with_key("192.0.2.1:1", "own"), request_of("192.0.2.1")];
    assert_eq!(statuses(&service, requests).await, [429, 200, 200]);
    // Without the header the address is in the first piece and in the second one.
    assert_eq!(statuses(&service, [request_of("192.0.2.66")]).await, [429]);
}

#[tokio::test]
async fn overrides_of_one_address_hold_wherever_it_was_found() {
    let (limiter, _) = limiter();
    let key = ClientIp::header("x-real-ip").or(ClientIp::peer());
    let layer = RateLimitLayer::new("either", limit("5/1m")).limiter(limiter.clone()).key(key);
    let service = counted(&layer, &Served::default());
    let rule = Rule::new().overriding(KeyMatch::parts([("ip", "192.0.2.66")]), Rule::new().mode(Mode::Deny));
    limiter.set_rules(RuleSet::new().rule("either", rule)).expect("valid");
    let by_proxy = request("10.0.0.1:1", "/", &[("x-real-ip", "192.0.2.66")]);
    assert_eq!(
        statuses(&service, [by_proxy, request_of("192.0.2.66"), request_of("192.0.2.1")]).await,
        [429, 429, 200]
    );
}

#[tokio::test]
async fn a_declared_name_may_have_overrides_before_its_layer_is_made() {
    let rule = || {
        let deny = Rule::new().mode(Mode::Deny);
        Rule::new().limit(limit("5/1m")).overriding(KeyMatch::parts([("ip", "192.0.2.66")]), deny)
    };
    let set = |name: &str| RuleSet::new().rule(name, rule());
    let error = Limiter::builder().rules(set("undeclared")).build().expect_err("no such function");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`Builder::declare`"), "{error}");
    let limiter = Limiter::builder().declare("declared").rules(set("declared")).build().expect("declared");
    let layer = RateLimitLayer::new("declared", limit("9/1m")).limiter(limiter);
    let service = counted(&layer, &Served::default());
    assert_eq!(statuses(&service, [request_of("192.0.2.66"), request_of("192.0.2.1")]).await, [429, 200]);
}

#[tokio::test]
async fn direct_calls_with_the_key_of_a_layer_see_its_quota() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("api", limit("2/1m")).limiter(limiter.clone()).missing(Missing::Shared);
    let service = counted(&layer, &Served::default());
    send(&service, request_of("192.0.2.1")).await;
    let key = Key::new("api").text(":ip:").part("192.0.2.1");
    let named = limiter.named("api");
    assert_eq!(named.peek(&key, &limit("2/1m")).await.expect("decides").remaining(), 1);
    named.reset(&key, &limit("2/1m")).await.expect("resets");
    assert_eq!(field(&send(&service, request_of("192.0.2.1")).await, "ratelimit"), [r#""api";r=1;t=60"#]);
    send(&service, http::Request::new(String::new())).await;
    let missing = Key::new("api").text(":missing:").part("");
    assert_eq!(named.peek(&missing, &limit("2/1m")).await.expect("decides").remaining(), 1);
}

#[tokio::test]
async fn overrides_of_parts_that_a_layer_lacks_are_rejected_once_it_is_there() {
    let (limiter, _) = limiter();
    let by_part = |part: &str| {
        let deny = Rule::new().mode(Mode::Deny);
        RuleSet::new().rule("known parts", Rule::new().overriding(KeyMatch::parts([(part, "192.0.2.66")]), deny))
    };
    let key = Header::new("x-api-key").or(ClientIp::peer());
    let layer = RateLimitLayer::new("known parts", limit("9/1m")).limiter(limiter.clone()).key(key);
    limiter.set_rules(by_part("ipp")).expect("the parts are unknown before the layer is added");
    let service = counted(&layer, &Served::default());
    limiter.set_rules(by_part("ip")).expect("a part of the second form");
    limiter.set_rules(by_part("x-api-key")).expect("a part of the first form");
    let error = limiter.set_rules(by_part("ipp")).expect_err("no form has the part");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = "override 1 of the rule `known parts`: `match` must name parts of the key";
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!(statuses(&service, [request_of("192.0.2.66")]).await, [200], "the last valid rules stay");
}

#[tokio::test]
async fn an_override_of_a_method_that_counts_as_another_is_rejected() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("methods", limit("9/1m")).limiter(limiter.clone()).key(Method);
    let service = counted(&layer, &Served::default());
    let by_method = |method: &str| {
        let deny = Rule::new().mode(Mode::Deny);
        RuleSet::new().rule("methods", Rule::new().overriding(KeyMatch::parts([("method", method)]), deny))
    };
    let error = limiter.set_rules(by_method("HEAD")).expect_err("no request has it");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = "override 1 of the rule `methods`: `method` must be `GET` for requests of `HEAD` too";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(limiter.set_rules(by_method("PROPFIND")).is_err());
    let of = |method: &str| {
        let mut request = request_of("192.0.2.1");
        *request.method_mut() = method.parse().expect("a method");
        request
    };
    limiter.set_rules(by_method("GET")).expect("it counts");
    assert_eq!(statuses(&service, [of("HEAD"), of("GET"), of("PROPFIND")]).await, [429, 429, 200]);
    limiter.set_rules(by_method("other")).expect("it counts");
    assert_eq!(statuses(&service, [of("HEAD"), of("PROPFIND")]).await, [200, 429]);
}

/// A blocked network was no key of the layer, so its clients were served, and no line told so.
#[tokio::test]
async fn a_network_in_an_override_blocks_its_clients() {
    let blocked = [
        ("203.0.113.0/24", "203.0.113.9"),
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.0/120", "203.0.113.9"),
        ("2001:db8::/48", "[2001:db8::9]"),
        ("2001:db8::/64", "[2001:db8::9]"),
        ("::/0", "[2001:db8::9]"),
    ];
    for (number, (network, peer)) in (0..).zip(blocked) {
        let name = format!("networks {number}");
        let deny = Rule::new().mode(Mode::Deny);
        let rules = RuleSet::new().rule(&name, Rule::new().overriding(KeyMatch::parts([("ip", network)]), deny));
        let limiter = Limiter::builder().declare(&name).rules(rules).build().expect("a network");
        let service = counted(&RateLimitLayer::new(name, limit("9/1m")).limiter(limiter), &Served::default());
        let requests = [request_of(peer), request_of("192.0.2.1"), request_of("[2001:db9::1]")];
        let is_all = network == "::/0";
        assert_eq!(statuses(&service, requests).await, [429, 200, if is_all { 429 } else { 200 }], "{network}");
    }
}

/// The parts of the address are known by the second form of the key alone.
#[tokio::test]
async fn the_error_of_a_value_is_that_of_the_form_which_has_its_part() {
    let (limiter, _) = limiter();
    let key = Header::new("x-api-key").or((Method, ClientIp::peer()));
    let layer = RateLimitLayer::new("values of a form", limit("9/1m")).limiter(limiter.clone()).key(key);
    let _service = counted(&layer, &Served::default());
    for (part, value) in [("ip", "2001:db8::9"), ("method", "HEAD")] {
        let rule = Rule::new().overriding(KeyMatch::parts([(part, value)]), Rule::new().mode(Mode::Deny));
        let error = limiter.set_rules(RuleSet::new().rule("values of a form", rule)).expect_err(value);
        let start = format!("override 1 of the rule `values of a form`: `{part}` must ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

/// The stated key has no kinds of values, which its layer knows.
#[tokio::test]
async fn a_value_that_no_client_has_is_an_error_under_a_stated_key_too() {
    let (limiter, _) = limiter();
    let key = (Method, ClientIp::peer());
    let layer = RateLimitLayer::new("stated", limit("9/1m")).limiter(limiter.clone()).key(key);
    let _service = counted(&layer, &Served::default());
    let set = |key: &str, part, value| {
        let text = format!(
            "[rules.stated]\nkey = \"{key}\"\n[[rules.stated.override]]\nmatch = {{ {part} = \"{value}\" }}\nmode = \"deny\"\n"
        );
        limiter.set_rules(text.parse::<RuleSet>().expect("a valid text"))
    };
    let stated = "stated:method:{method}:ip:{ip}";
    for (part, value) in [("ip", "2001:db8::9"), ("ip", "10.0.0.0/33"), ("method", "HEAD")] {
        let error = set(stated, part, value).expect_err(value);
        let start = format!("override 1 of the rule `stated`: `{part}` must ");
        assert!(error.to_string().contains(&start), "{error}");
        set("another:{method}:{ip}", part, value).expect("the key of direct calls");
    }
    set(stated, "ip", "192.0.2.1").expect("an address that clients have");
}

#[test]
fn a_value_that_no_client_has_is_a_warning_if_its_layer_is_made_later() {
    child_process::run("tower::rules::log_of_values_that_were_set_before_their_layer", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_values_that_were_set_before_their_layer() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let cases = [
        ("early address", "ip", "2001:db8::9", "write the network of 64 bits around it"),
        ("early network", "ip", "10.0.0.0/33", "write one such as"),
        ("early method", "method", "HEAD", "write `GET`, which matches both"),
    ];
    for (name, part, value, advice) in cases {
        let rule = Rule::new().overriding(KeyMatch::parts([(part, value)]), Rule::new().mode(Mode::Deny));
        let set = RuleSet::new().rule(name, rule);
        let limiter = Limiter::builder().declare(name).rules(set).build().expect("the layer is unknown");
        let layer = RateLimitLayer::new(name, limit("9/1m")).limiter(limiter).key((Method, ClientIp::peer()));
        assert!(
            !lines().iter().any(|line| line.contains("override 1") && line.contains(name)),
            "nothing is known of the layer"
        );
        let service = counted(&layer, &Served::default());
        let start = format!("the rules of the builder: override 1 of the rule `{name}`: `{part}` must ");
        let is_warning = |line: &&String| line.contains("WARN") && line.contains(&start) && line.contains(advice);
        // Before the first request, and once.
        eventually(name, async || lines().iter().any(|line| is_warning(&line))).await;
        assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
        assert_eq!(lines().iter().filter(is_warning).count(), 1, "{:?}", lines());
    }
}

#[test]
fn each_override_of_a_file_that_matches_no_key_is_logged_with_its_place() {
    child_process::run("tower::rules::log_of_overrides_of_a_file", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_overrides_of_a_file() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let of_file = |number: usize| {
        format!("[[rules.\"of a file\".override]]\nmatch = {{ ip = \"2001:db8::{number}\" }}\nmode = \"deny\"\n")
    };
    let text: String = (1..=25).map(of_file).collect();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rules.toml");
    std::fs::write(&file, text).expect("written");
    let limiter = Limiter::builder().declare("of a file").rules_file(&file).build().expect("the layer is unknown");
    let layer = RateLimitLayer::new("of a file", limit("9/1m")).limiter(limiter);
    let service = counted(&layer, &Served::default());
    let warnings = |number: usize| {
        let place = format!("{}: line {}, column 9: ", file.display(), 3 * number - 1);
        let start = format!("{place}override {number} of the rule `of a file`: `ip` must ");
        lines().iter().filter(|line| line.contains("WARN") && line.contains(&start)).count()
    };
    let more = || lines().iter().filter(|line| line.contains("more=5")).count();
    eventually("logged", async || more() == 1).await;
    assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
    assert!((1..=20).all(|number| warnings(number) == 1) && (21..=25).all(|number| warnings(number) == 0));
    assert!(lines().iter().all(|line| !line.contains("2001:db8")), "values may be personal data");
}

#[test]
fn a_denial_for_its_cost_has_the_origin_of_an_override_by_parts() {
    child_process::run("tower::rules::log_of_a_cost", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_a_cost() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let limiter = Limiter::builder().rule("costly", Rule::new().limit(limit("100/1m"))).build().expect("valid");
    let layer = RateLimitLayer::new("costly", limit("9/1m")).limiter(limiter.clone()).cost(|_| 10);
    let service = counted(&layer, &Served::default());
    let of_client = Rule::new().limit(limit("3/1m"));
    let overriding = Rule::new().overriding(KeyMatch::parts([("ip", "192.0.2.1")]), of_client);
    limiter.set_rules(RuleSet::new().rule("costly", overriding)).expect("valid");
    assert_eq!(statuses(&service, [request_of("192.0.2.2"), request_of("192.0.2.1")]).await, [200, 429]);
    let of_override = "rule=\"costly\" cost=10 limit=3/min origin=\"runtime\"";
    assert!(lines().iter().any(|line| line.contains(of_override)), "{:?}", lines());
}

/// The settings applied all the same, and no line told that the stated key is another one.
#[test]
fn a_stated_key_that_is_not_the_layers_is_a_warning_when_both_are_known() {
    child_process::run("tower::rules::log_of_stated_keys", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_stated_keys() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let set = |name: &str, key: &str| -> RuleSet {
        format!("[rules.\"{name}\"]\nkey = \"{key}\"\nlimit = \"9/h\"\n").parse().expect("valid")
    };
    let problem = |name: &str, stated: &str, keys: &str| {
        format!(
            "line 1, column 8: `key` of the rule `{name}` must be that of its function or layer, got `{stated}`: write \
             {keys}, or remove it"
        )
    };
    let count = |text: &str| lines().iter().filter(|line| line.contains("WARN") && line.contains(text)).count();
    let made = |name: &'static str, limiter: &Limiter| {
        let key = Header::new("x-api-key").or(ClientIp::peer());
        counted(&RateLimitLayer::new(name, limit("9/1m")).limiter(limiter.clone()).key(key), &Served::default())
    };
    let keys = |name: &str| format!("`{name}:ip:{{ip}}` or `{name}:x-api-key:{{x-api-key}}`");

    // The layer is known when the rules are set, and the other way round.
    let limiter = Limiter::memory();
    let service = made("known first", &limiter);
    limiter.set_rules(set("known first", "user:{ip}")).expect("the key of direct calls");
    let of_first = problem("known first", "user:{ip}", &keys("known first"));
    eventually("logged at the load", async || count(&of_first) == 1).await;
    assert_eq!(statuses(&service, [request_of("192.0.2.1"), request_of("192.0.2.1")]).await, [200, 200]);
    let limiter = Limiter::builder().rules(set("known later", "user:{ip}")).build().expect("no layer yet");
    let of_later = problem("known later", "user:{ip}", &keys("known later"));
    assert_eq!(count(&of_later), 0);
    let service = made("known later", &limiter);
    eventually("logged for the layer", async || count(&of_later) == 1).await;
    assert_eq!(statuses(&service, [request_of("192.0.2.1"), request_of("192.0.2.1")]).await, [200, 200]);

    // Each form of the layer's key is one of its keys.
    for key in ["right:ip:{ip}", "right:x-api-key:{x-api-key}"] {
        let limiter = Limiter::builder().rules(set("right", key)).build().expect("valid");
        let service = made("right", &limiter);
        assert_eq!(statuses(&service, [request_of("192.0.2.1")]).await, [200]);
    }
    limiter.set_rules(set("known first", "last:{ip}")).expect("valid");
    eventually("logged", async || count("got `last:{ip}`") == 1).await;
    assert_eq!((count(&of_first), count(&of_later), count("of the rule `right`")), (1, 1, 0), "{:?}", lines());
}

#[tokio::test]
async fn a_value_that_no_client_has_is_an_error_once_the_layer_is_there() {
    let (limiter, _) = limiter();
    let layer = RateLimitLayer::new("known values", limit("9/1m")).limiter(limiter.clone());
    let _service = counted(&layer, &Served::default());
    for value in ["2001:db8::9", "2001:db8::/65", "203.0.113.009", "10.0.0.0/33"] {
        let rule = Rule::new().overriding(KeyMatch::parts([("ip", value)]), Rule::new().mode(Mode::Deny));
        let error = limiter.set_rules(RuleSet::new().rule("known values", rule)).expect_err(value);
        assert_eq!(error.kind(), ErrorKind::Config, "{value}");
        assert!(error.to_string().contains("write"), "{error}");
    }
}
