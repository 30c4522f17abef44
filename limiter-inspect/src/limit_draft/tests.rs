use super::*;
use crate::validity::check_text;

const TEXT: &str = "# Quotas of the shop.\n[rules.\"user:{user_id}\"]\nlimit = \"5/10s\" # agreed in May\n\n[rules.search]\n\
    limit = \"100/min\"\n# The end.\n";

fn draft(toml: &str, rule: &str, key: Option<&str>, templates: &[&str], limits: &[&str]) -> Result<LimitDraft, String> {
    let key = key.map(|key| Key::from_encoded(key).expect("a key"));
    let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
    draft_limit(toml, DraftSubject { rule, key: key.as_ref(), templates, limits: &limits })
}

/// Returns the text of a draft with `<` and `>` around the limit.
fn marked(toml: &str, rule: &str, key: Option<&str>, templates: &[&str], limits: &[&str]) -> String {
    let LimitDraft { toml, limit_at } = draft(toml, rule, key, templates, limits).expect("a draft");
    assert_eq!(check_text(&toml), Ok(()), "{toml}");
    format!("{}<{}>{}", &toml[..limit_at.start], &toml[limit_at.clone()], &toml[limit_at.end..])
}

const USER: &str = "user:{user_id}";

#[test]
fn an_override_is_added_below_its_rule_with_the_present_limit() {
    let added = "[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = \"4711\" }\nlimit = \"<5/10s>\"\n";
    let expected = TEXT.replace("\n[rules.search]", &format!("\n{added}\n[rules.search]"));
    assert_eq!(marked(TEXT, USER, Some("user:@4711"), &[USER], &["5/10s"]), expected);
    assert_eq!(marked("", USER, Some("user:@4711"), &[USER], &["5/10s"]), added);
    let below = format!("{TEXT}\n{}", added.replace("user:{user_id}", "tenant:{user_id}"));
    assert_eq!(marked(TEXT, "tenant:{user_id}", Some("user:@4711"), &[USER], &["5/10s"]), below);
    let windows = TEXT.replace('\n', "\r\n");
    assert_eq!(marked(&windows, USER, Some("user:@4711"), &[USER], &["5/10s"]), expected.replace('\n', "\r\n"));
}

#[test]
fn an_override_that_the_text_has_is_found() {
    for keys in ["match = { user_id = 4711 }", "key = \"user:@4711\""] {
        let text = format!("{TEXT}[[rules.\"user:{{user_id}}\".override]]\n{keys}\nlimit = \"9/10s\" # more\n");
        let found = marked(&text, USER, Some("user:@4711"), &[USER], &["5/10s"]);
        assert_eq!(found, text.replace("9/10s", "<9/10s>"));
        let denied = text.replace("limit = \"9/10s\" # more", "mode = \"deny\"");
        let found = marked(&denied, USER, Some("user:@4711"), &[USER], &["5/10s"]);
        assert_eq!(found, format!("{denied}limit = \"<5/10s>\"\n"));
    }
    let text = "[rules.a]\nlimit = { limit = \"5/s\", algorithm = \"token_bucket\" }\n";
    assert_eq!(marked(text, "a", None, &[], &[]), text.replace("5/s", "<5/s>"));
    let text = "[rules.a]\nlimits = [\n  \"5/s\", # burst\n  \"50/min\",\n]\n";
    assert_eq!(marked(text, "a", None, &[], &[]), text.replace("5/s", "<5/s>"));
}

/// The later of two overrides that have a key would never apply.
#[test]
fn a_new_override_is_before_a_list_with_its_value() {
    let list = "[[rules.\"user:{user_id}\".override]]\n# Partners.\nmatch = { user_id = [\"4711\", \"13\"] }\nmode = \"shadow\"\n";
    let text = format!("{TEXT}\n{list}");
    let added = "[[rules.\"user:{user_id}\".override]]\nmatch = { user_id = \"13\" }\nlimit = \"<5/10s>\"\n";
    let found = marked(&text, USER, Some("user:@13"), &[USER], &["5/10s"]);
    assert!(found.find(added).is_some_and(|at| at < found.find("# Partners.").expect("the list")), "{found}");
    // Nothing is lost.
    assert_eq!(found.len(), text.len() + "\n".len() + added.len(), "{found}");
}

#[test]
fn a_key_without_names_for_its_parts_is_matched_as_a_whole() {
    let whole = |key: &str, templates: &[&str]| marked("", "upload", Some(key), templates, &["5/s"]);
    let text = |key: &str| format!("[[rules.upload.override]]\nkey = \"{key}\"\nlimit = \"<5/s>\"\n");
    assert_eq!(whole("upload:@7", &[]), text("upload:@7"));
    assert_eq!(whole("getId", &["getId"]), text("getId"));
    assert_eq!(whole("file:@a%2A", &["file:{name}"]), text("file:@a%2A"));
    let parts = "[[rules.upload.override]]\nmatch = { tenant = \"acme\", id = \"7\" }\nlimit = \"<5/s>\"\n";
    assert_eq!(whole("order:@acme@:@7", &["order:{tenant}:{id:08}"]), parts);
    let digest = draft("", "a", Some(&Key::new("").part("x".repeat(300)).encoded()), &["{a}"], &[]);
    assert!(digest.is_err_and(|message| message.contains("got a digest")));
}

#[test]
fn rules_in_inline_tables_and_unknown_limits_are_drafted_too() {
    let text = "rules = { a = { limit = \"1/s\" } }\n";
    let expected = "rules = { a = { limit = \"1/s\" , override = [{ match = { b = \"2\" }, limit = \"<1/s>\" }] } }\n";
    assert_eq!(marked(text, "a", Some("a:@2"), &["a:{b}"], &["1/s"]), expected);
    let empty = draft(TEXT, "export", None, &[], &[]).expect("a draft");
    assert!(empty.toml.ends_with("[rules.export]\nlimit = \"\"\n") && empty.limit_at.is_empty(), "{}", empty.toml);
    let several = marked("", "a", None, &[], &["5/s", "100/min"]);
    assert_eq!(several, "[rules.a]\nlimits = [\"<5/s>\", \"100/min\"]\n");
    assert!(draft("[", "a", None, &[], &[]).is_err() && draft("rules = 1", "a", None, &[], &[]).is_err());
}

/// `match` would take the value for a network, and raise the limit of every customer in it.
#[test]
fn a_value_that_may_be_a_network_is_matched_as_a_whole_key() {
    let encoded = Key::new("user:").part("0.0.0.0/0").encoded();
    let added = marked(TEXT, USER, Some(&encoded), &[USER], &["5/10s"]);
    assert!(!added.contains("match =") && added.contains(&format!("key = \"{encoded}\"")), "{added}");
}
