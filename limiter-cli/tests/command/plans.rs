//! The plans of customers: `--plan`, `usage` and `rules list`.

use serde_json::json;

use crate::support::{limiter, limiter_with_input, server};

const TEXT: &str = "[plans.free]\nlimit = \"1000/d\"\n\n[plans.pro]\nlimits = [\"10000/d\", \"50/s\"]\non_error = \"open\"\n\n\
                    [rules.api]\nkey = \"api:{customer}\"\nplans = [\"free\", \"pro\"]\n\n\
                    [rules.search]\nlimit = \"5/s\"\n";

#[test]
fn an_upgrade_keeps_what_was_used() {
    let server = server();
    limiter_with_input(&server.url(), &["rules", "import", "-"], TEXT.as_bytes()).ok();
    let run = |arguments: &[&str]| limiter(&server.url(), arguments);
    let of_plan = |command: &str, plan: &str| {
        let arguments = ["--json", command, "api:@42", "--rule", "api", "--plan", plan];
        run(&arguments).json()
    };
    let check = run(&["check", "api:@42", "--rule", "api", "--plan", "free", "--cost", "900"]).ok();
    assert!(check.starts_with("allowed: api:@42, 100 left of 1000/d"), "{check}");
    let usage = of_plan("usage", "pro");
    assert_eq!(usage["key"], "api:@42");
    let of_limit = |limit: &str, used: u32, remaining: u32| (json!(limit), json!(used), json!(remaining), json!(0));
    let limits: Vec<_> = usage["limits"].as_array().expect("a list").clone();
    let numbers = limits.iter().map(|usage| {
        (usage["limit"].clone(), usage["used"].clone(), usage["remaining"].clone(), usage["overdrawn"].clone())
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [of_limit("10000/d", 900, 9_100), of_limit("50/s", 0, 50)]);
    assert_eq!(limits[1]["reset_after_ms"], 0);
    let text = run(&["usage", "api:@42", "--rule", "api", "--plan", "pro"]).ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "api:@42");
    assert!(lines[1].starts_with("  10000/d: 900 used, 9100 left, full quota in 23 h 59 min"), "{text}");
    assert_eq!(lines[2], "  50/s: 0 used, 50 left");
    assert_eq!(of_plan("peek", "pro")["limits"][0]["remaining"], 9_100);
    let without_rule = run(&["usage", "api:@42", "--limit", "500/d"]).ok();
    assert!(without_rule.contains("500/d: 900 used, 400 beyond the limit, full quota in"), "{without_rule}");
}

#[test]
fn a_plan_that_the_rule_lacks_is_an_error() {
    let server = server();
    limiter_with_input(&server.url(), &["rules", "import", "-"], TEXT.as_bytes()).ok();
    let error = |rule: &str, plan: &[&str]| {
        let arguments = [&["peek", "api:@42", "--rule", rule], plan].concat();
        let output = limiter(&server.url(), &arguments);
        assert_eq!(output.code, Some(2), "{output:?}");
        output.stderr
    };
    let unknown = "error: `--plan` must be a plan that the rule `api` names, got";
    assert_eq!(error("api", &["--plan", "por"]), format!("{unknown} `por`: write `pro`\n"));
    assert_eq!(error("api", &["--plan", "gold"]), format!("{unknown} `gold`: write one of `free`, `pro`\n"));
    let none = "error: `--plan` must be a plan that the rule `search` names, got `pro`: remove it, because the rule names none\n";
    assert_eq!(error("search", &["--plan", "pro"]), none);
    let missing = "error: `--plan` must be written for the rule `api`, which has no limit of its own, got none: write one of \
                   `free`, `pro`\n";
    assert_eq!(error("api", &[]), missing);
}

#[test]
fn plans_are_listed_with_their_limits() {
    let server = server();
    limiter_with_input(&server.url(), &["rules", "import", "-"], TEXT.as_bytes()).ok();
    let list = limiter(&server.url(), &["rules", "list"]).ok();
    let lines: Vec<_> = list.lines().map(str::trim_end).collect();
    assert_eq!(lines[1], "RULE       LIMITS         ALGORITHM  MODE  ON ERROR  DEADLINE  PLANS      OVERRIDES");
    assert_eq!(lines[2], "api        -              -          -     -         -         free, pro          0");
    assert_eq!(lines[3], "search     5/s            -          -     -         -         -                  0");
    assert_eq!(lines[4], "plan free  1000/d         -          -     -         -");
    assert_eq!(lines[5], "plan pro   10000/d, 50/s  -          -     open      -");
    let json = limiter(&server.url(), &["--json", "rules", "list"]).json();
    assert_eq!(json["rules"][0]["plans"], json!(["free", "pro"]));
    assert_eq!(json["plans"][1], json!({ "name": "pro", "limits": ["10000/d", "50/s"], "on_error": "open" }));
}
