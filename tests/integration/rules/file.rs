//! The file of rules, as a program uses it.

use std::fs;
use std::path::PathBuf;

use rate_limited::{
    Algorithm, Denied, ErrorKind, Key, KeyMatch, Limiter, Mode, Origin, Rule, RuleSet, Source, rate_limited,
};
use tempfile::TempDir;

use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};
use crate::support::{key, limit};

const RULES_VARIABLE: &str = "RATE_LIMITED_RULES";

#[rate_limited(key = "from_file", limit = "1/h")]
fn from_file() -> Result<(), Denied> {
    Ok(())
}

/// A file of rules in a directory of its own.
struct RulesFile {
    _directory: TempDir,
    path: PathBuf,
}

impl RulesFile {
    fn new(text: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let file = Self { path: directory.path().join("rules.toml"), _directory: directory };
        file.write(text);
        file
    }

    /// Creates a file with this limit for [`from_file`].
    fn with_limit(max: u32) -> Self {
        Self::new(&text(max))
    }

    /// Replaces the file as a whole, so that no half of it is read.
    fn write(&self, text: &str) {
        let new = self.path.with_extension("new");
        fs::write(&new, text).expect("written");
        fs::rename(&new, &self.path).expect("renamed");
    }
}

fn text(max: u32) -> String {
    format!("[rules.from_file]\nlimit = \"{max}/h\"\n")
}

/// Returns the configured limit of [`from_file`] and its level.
fn in_force(limiter: &Limiter) -> Option<(u32, Origin)> {
    let rule = limiter.rules().into_iter().find(|rule| rule.name() == "from_file")?;
    Some((rule.limits().first()?.max(), rule.origin()))
}

fn allowed_calls(limiter: &Limiter) -> usize {
    limiter.scope_sync(|| (0..20).filter(|_| from_file().is_ok()).count())
}

#[tokio::test]
async fn the_file_holds_at_once_and_its_changes_while_the_program_runs() {
    for waits in [false, true] {
        let file = RulesFile::with_limit(3);
        let builder = Limiter::builder().rules_file(&file.path);
        let limiter = if waits { builder.connect().await } else { builder.build() }.expect("a good file");
        assert_eq!((in_force(&limiter), allowed_calls(&limiter)), (Some((3, Origin::File)), 3));
        file.write(&text(7));
        eventually("changed", async || in_force(&limiter) == Some((7, Origin::File))).await;
        assert_eq!(allowed_calls(&limiter), 4);
        file.write("#");
        eventually("removed", async || in_force(&limiter).is_none()).await;
        assert_eq!((limiter.rules_file_errors(), limiter.rules_file_error().is_none()), (0, true));
    }
}

#[tokio::test]
async fn the_last_good_rules_survive_a_bad_file() {
    let file = RulesFile::with_limit(3);
    let limiter = Limiter::builder().rules_file(&file.path).build().expect("a good file");
    file.write("[rules.from_file]\nlimit = \"9/h\"\nmdoe = \"off\"\n");
    eventually("rejected", async || limiter.rules_file_error().is_some()).await;
    let error = limiter.rules_file_error().expect("rejected");
    let message = format!(
        "{}: line 3, column 1: `mdoe` must be a setting of a rule, got an unknown name: write `mode`",
        file.path.display()
    );
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Config, message));
    assert_eq!(
        (in_force(&limiter), allowed_calls(&limiter), limiter.rules_file_errors()),
        (Some((3, Origin::File)), 3, 1)
    );
    fs::remove_file(&file.path).expect("a file");
    eventually("missing", async || limiter.rules_file_errors() == 2).await;
    assert_eq!(in_force(&limiter), Some((3, Origin::File)));
    file.write(&text(9));
    eventually("in force", async || limiter.rules_file_error().is_none()).await;
    assert_eq!((in_force(&limiter), limiter.rules_file_errors()), (Some((9, Origin::File)), 2));
}

#[tokio::test]
async fn the_file_is_between_the_rules_at_run_time_and_the_builder() {
    let file = RulesFile::with_limit(3);
    let own = || Rule::new().limit(limit("2/h"));
    let limiter = Limiter::builder().rule("from_file", own()).rules_file(&file.path).build().expect("a good file");
    assert_eq!(in_force(&limiter), Some((3, Origin::File)));
    let at_run_time = RuleSet::new().rule("from_file", Rule::new().limit(limit("4/h")));
    limiter.set_rules(at_run_time).expect("valid");
    file.write("[rules.from_file]\nmode = \"off\"");
    eventually("off", async || allowed_calls(&limiter) == 20).await;
    assert_eq!(in_force(&limiter), Some((4, Origin::Runtime)));
    limiter.set_rules(RuleSet::new()).expect("valid");
    assert_eq!(in_force(&limiter), Some((2, Origin::Builder)));
}

#[tokio::test]
async fn a_bad_file_at_the_start_fails_the_build() {
    let file = RulesFile::new("[rules.from_file]\nlimit = \"0/h\"");
    let message = format!(
        "{}: line 2, column 9: `limit` must be `permits/window`, got `0/h` without a permit: write `mode = \"deny\"` in \
         its rule to deny every call",
        file.path.display()
    );
    let builder = || Limiter::builder().rules_file(&file.path);
    for error in [builder().build().expect_err("no limit"), builder().connect().await.expect_err("no limit")] {
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::Config, &*message));
    }
}

#[test]
fn a_strict_file_with_an_unknown_rule_fails_the_build_at_its_line() {
    let file = RulesFile::new("strict = true\n\n[rules.from_fiel]\nlimit = \"5/s\"\n");
    let error = Limiter::builder().rules_file(&file.path).build().expect_err("a misspelt name");
    let message = format!(
        "{}: line 3, column 8: `strict` rules must each have a function, got `from_fiel` (is it `from_file`?): ",
        file.path.display()
    );
    assert!(error.to_string().starts_with(&message), "{error}");
    let file = RulesFile::new("[rules.from_file]\nkey = \"another\"\n");
    let error = Limiter::builder().rules_file(&file.path).build().expect_err("another key");
    let message = format!("{}: line 1, column 8: `key` of the rule `from_file` must be ", file.path.display());
    assert!(error.to_string().starts_with(&message), "{error}");
}

#[test]
fn settings_of_an_unknown_rule_are_logged_with_their_place() {
    child_process::run("rules::file::log_of_unknown_rules", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_unknown_rules() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let unknown = "[rules.from_fiel]\nmode = \"off\"\n\n[rules.without_a_limit]\nmode = \"off\"\n";
    let file = RulesFile::new(unknown);
    let limiter = Limiter::builder().rules_file(&file.path).build().expect("a good file");
    const MESSAGE: &str = "message=there are settings of rules that no annotated function has: correct the name, or \
                           declare it by `key` in the rule or by `Builder::declare`";
    let logged = |first_line: u32| {
        let rules = format!(
            "rules=\"`from_fiel` in line {first_line} (is it `from_file`?), `without_a_limit` in line {} (is it \
             `without a limit`, the rule of that function?)\"",
            first_line + 3
        );
        let file = format!("file=\"{}\"", file.path.display());
        let parts = ["WARN", MESSAGE, &rules, &file];
        lines().iter().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    eventually("logged", async || logged(1)).await;
    file.write(&format!("# changed\n{unknown}"));
    eventually("logged again", async || logged(2)).await;
    // Without a text there is no place.
    limiter.set_rules(RuleSet::new().rule("nothing like it", Rule::new())).expect("a warning");
    let is_plain = |line: &String| line.contains("rules=\"`nothing like it`\"") && !line.contains("file=");
    eventually("logged without a place", async || lines().iter().any(is_plain)).await;
}

#[test]
fn overrides_that_match_no_direct_call_are_logged_once_with_their_place() {
    child_process::run("rules::file::log_of_overrides_of_direct_calls", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_overrides_of_direct_calls() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let file = RulesFile::new(
        "[rules.direct]\nlimit = \"9/h\"\n[[rules.direct.override]]\nmatch = { user = \"7\" }\nmode = \"deny\"\n\
         [[rules.direct.override]]\nkey = \"direct:@8\"\nmode = \"deny\"\n",
    );
    let limiter = Limiter::builder().declare("direct").rules_file(&file.path).build().expect("a good file");
    let call = async || {
        let key = Key::new("direct:").part(7);
        limiter.named("direct").check(&key, &limit("9/h")).await.expect("memory").is_allowed()
    };
    let place = format!("{}: line 4, column 9: override 1 of the rule `direct`: ", file.path.display());
    let count = || lines().iter().filter(|line| line.contains("WARN") && line.contains(&place)).count();
    assert_eq!(count(), 0);
    assert!(call().await);
    eventually("logged", async || count() == 1).await;
    // Other rules begin another state of all rules, in which the file is the same.
    limiter.set_rules(RuleSet::new().rule("another", Rule::new())).expect("a warning");
    assert!(call().await);
    let is_of_another = |line: &String| line.contains("`another`");
    eventually("logged later", async || lines().iter().any(is_of_another)).await;
    assert_eq!(count(), 1, "{:?}", lines());
    assert!(lines().iter().all(|line| !line.contains("override 2")), "it is of one key");
}

#[rate_limited(key = "costly import", limit = "100/min", cost = 10)]
fn import() -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = "costly bucket", limit = "100/min", algorithm = token_bucket, burst = 100, cost = 10)]
fn import_by_bucket() -> Result<(), Denied> {
    Ok(())
}

#[test]
fn a_cost_above_the_configured_limit_is_logged() {
    child_process::run("rules::file::log_of_costs", &[("", ""); 0]);
}

#[tokio::test]
#[ignore = "needs a process of its own, for its log"]
async fn log_of_costs() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    const MESSAGE: &str = "the limits of a rule or of an override never grant the `cost` of a function";
    let logged = || lines().iter().filter(|line| line.contains(MESSAGE)).cloned().collect::<Vec<_>>();
    let file = RulesFile::new("[rules.\"costly import\"]\nlimit = \"5/min\"\n");
    let limiter = Limiter::builder().rules_file(&file.path).build().expect("a good file");
    let is_of = |line: &String, part: &str, permits: u32| {
        let parts = ["WARN", "rule=\"costly import\"", "cost=10", &format!("permits={permits}"), part, "import)"];
        parts.iter().all(|part| line.contains(part))
    };
    eventually("logged", async || logged().iter().any(|line| is_of(line, "part=\"rule\"", 5))).await;
    let of_file = format!("origin=\"file\" file=\"{}\" line=1", file.path.display());
    assert!(logged()[0].contains(&of_file), "{:?}", logged());
    limiter.scope_sync(|| import().expect_err("the cost is above the limit"));
    let of_denial = |line: &String| line.contains("a call was denied for its cost");
    assert!(!lines().iter().any(of_denial), "logged when it was loaded: {:?}", lines());
    // The last set alone has such a limit, in an override.
    let bursting = Rule::new().limit(limit("5/min")).algorithm(Algorithm::TokenBucket).burst(10);
    let fitting = [Rule::new().limit(limit("10/min")), bursting, Rule::new().limit(limit("5/min")).mode(Mode::Deny)];
    for rule in fitting {
        limiter.set_rules(RuleSet::new().rule("costly import", rule)).expect("good rules");
    }
    // The attribute's burst grants the cost.
    limiter.set_rules(RuleSet::new().rule("costly bucket", Rule::new().limit(limit("5/min")))).expect("good rules");
    // A set that is rejected denies no call.
    let rejected = "[rules.\"costly import\"]\nkey = \"of another\"\nlimit = \"6/min\"\n";
    limiter.set_rules(rejected.parse().expect("a rule")).expect_err("another key");
    let of_key = Rule::new().overriding(KeyMatch::key(&Key::new("costly import")), Rule::new().limit(limit("7/min")));
    limiter.set_rules(RuleSet::new().rule("costly import", of_key)).expect("good rules");
    eventually("logged again", async || logged().iter().any(|line| is_of(line, "part=\"override\"", 7))).await;
    assert_eq!(logged().len(), 2, "{:?}", logged());
    assert!(logged()[1].contains("origin=\"runtime\"") && !logged()[1].contains("file="), "{:?}", logged());
    import_by_bucket().expect("a permit");
}

#[rate_limited(key = "file:{user}", limit = "1/h")]
fn per_user(user: u32) -> Result<(), Denied> {
    let _ = user;
    Ok(())
}

#[tokio::test]
async fn overrides_of_the_file_apply_to_their_keys() {
    let file = RulesFile::new(
        "[[rules.\"file:{user}\".override]]\nmatch = { user = 42 }\nlimit = \"3/h\"\n\
         [[rules.\"file:{user}\".override]]\nkey = \"file:@13\"\nmode = \"deny\"\n",
    );
    let limiter = Limiter::builder().rules_file(&file.path).build().expect("a good file");
    let allowed = |user| limiter.scope_sync(|| (0..20).filter(|_| per_user(user).is_ok()).count());
    assert_eq!([42, 13, 7].map(allowed), [3, 0, 1]);
    file.write("[rules.\"file:{user}\"]\nmode = \"off\"\n");
    eventually("off", async || allowed(13) == 20).await;
}

#[tokio::test]
async fn a_layout_that_shows_keys_is_rejected_beside_hashed_keys() {
    let zset = "[rules.from_file]\nlayout = \"zset\"";
    let builder = || Limiter::builder().url("redis+unix:///nowhere").hash_keys([7; 32]);
    let file = RulesFile::new(zset);
    let error = builder().rules_file(&file.path).build().expect_err("a layout that shows keys");
    let message =
        format!("{}: line 1, column 8: `hash_keys` must be left out with `layout = \"zset\"`", file.path.display());
    assert!(error.to_string().starts_with(&message), "{error}");
    let file = RulesFile::with_limit(3);
    let limiter = builder().rules_file(&file.path).build().expect("a good file");
    file.write(zset);
    eventually("rejected", async || limiter.rules_file_errors() == 1).await;
    assert_eq!(in_force(&limiter), Some((3, Origin::File)));
}

#[test]
fn the_environment_names_the_file_of_the_default_limiter() {
    let (good, bad) = (RulesFile::with_limit(3), RulesFile::new("[rules"));
    let missing = good.path.with_extension("missing");
    for (path, admitted, source) in
        [(&good.path, 3, Source::Store), (&bad.path, 1, Source::Standby), (&missing, 1, Source::Standby)]
    {
        let variables = [
            (RULES_VARIABLE, path.display().to_string()),
            ("ADMITTED", admitted.to_string()),
            ("BY", format!("{source:?}")),
        ];
        child_process::run("rules::file::calls_with_the_file_of_the_environment", &variables);
    }
}

#[test]
#[ignore = "needs a process of its own, for its environment"]
fn calls_with_the_file_of_the_environment() {
    if !child_process::is_child() {
        return;
    }
    let admitted = (0..20).filter(|_| from_file().is_ok()).count();
    assert_eq!(admitted.to_string(), child_process::variable("ADMITTED"));
    let decision = Limiter::current().check_blocking(&key("a"), &limit("1/h")).expect("a decision");
    let source = decision.into_result().expect("the first call").source();
    assert_eq!(format!("{source:?}"), child_process::variable("BY"));
}

#[test]
fn the_examples_of_the_documentation_are_good_files() {
    const PAGE: &str = include_str!("../../../docs/rules.md");
    let blocks: Vec<_> = PAGE.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    for block in &blocks {
        let rules: RuleSet = block.parse().unwrap_or_else(|error| panic!("{error}:\n{block}"));
        Limiter::builder().rules(rules).build().unwrap_or_else(|error| panic!("{error}:\n{block}"));
    }
    assert!(!blocks.is_empty());
}
