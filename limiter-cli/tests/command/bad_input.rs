//! Wrong command lines, files and texts: a clear error, and nothing is changed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;

use crate::support::{limiter, limiter_with_input, server};

/// A command line without the name of the program, the exit code, and a part of standard error.
type Case = (&'static str, i32, &'static str);

const WITHOUT_STORE: &[Case] = &[
    ("", 2, "Usage: limiter [OPTIONS] <COMMAND>"),
    ("chekc a --limit 1/h", 2, "unrecognized subcommand 'chekc'"),
    (
        "check a",
        2,
        "the following required arguments were not provided:\n  --limit <LIMIT>\n\n  tip: write `--rule RULE`",
    ),
    ("peek a", 2, "tip: write `--rule RULE` instead: a shared rule, or one of a file with `--rules FILE`\n"),
    ("check a --limit 1/h --rule r", 2, "the argument '--limit <LIMIT>' cannot be used with '--rule <RULE>'"),
    ("check a --limit 1/h --rules f", 2, "cannot be used with"),
    ("check a --limit 5", 2, "`limit` must be `permits/window`, got `5` without a `/`: write one such as `5/10s`"),
    ("check a --limit 5/10parsecs", 2, "`limit` must be `permits/window`, got `5/10parsecs` with a window that is not"),
    ("check a --limit 0/s", 2, "`limit` must be `permits/window`, got `0/s` without a permit"),
    ("check a --limit -5/10s", 2, "`limit` must be `permits/window`, got `-5/10s`"),
    ("check a --limit 99999999999/s", 2, "`limit` must be `permits/window`, got `99999999999/s`"),
    ("check a --limit 5/9999999d", 2, "`window` must be at most 366 days"),
    ("check a --limit 5/99999999999999999999999d", 2, "got `5/99999999999999999999999d`"),
    ("check a --limit 5/s --cost -1", 2, "invalid value '-1' for '--cost <N>'"),
    ("check a --limit 5/s --cost 4294967296", 2, "4294967296 is not in 0..=4294967295"),
    ("check a --limit 5/s --denied-code 256", 2, "256 is not in 0..=255"),
    ("check a --limit 5/s --wait 5", 2, "a duration must be a number and a unit, up to 366 days: write one such as"),
    ("check a --limit 5/s --wait -5s", 2, "a duration must be a number and a unit"),
    ("check a --limit 5/s --", 2, "`--` must have a program behind it, got none: write one, or remove `--`"),
    ("check a --limit 5/s --algorithm token-bucket", 2, "a similar value exists: 'token_bucket'"),
    ("check a --limit 5/s --burst 9", 2, "`--burst` must be left out for sliding_window, got 9: write `--algorithm"),
    (
        "check a --limit 5/60s --limit 6/min",
        2,
        "`--limit` must have another window each time, got 1 min twice: remove the",
    ),
    ("check a --limit 0concurrent", 2, "`limit` must be `calls concurrent`, got `0concurrent` without a call"),
    (
        "check a --limit 5concurrent --algorithm token_bucket -- true",
        2,
        "`--algorithm` must be left out for `5 concurrent`",
    ),
    ("check a --limit 5concurrent --burst 9 -- true", 2, "`--burst` must be left out for `5 concurrent`"),
    ("check a --limit 5concurrent --limit 9concurrent -- true", 2, "`--limit` must count calls at once in one limit"),
    ("check a --limit 5concurrent", 2, "`check` must have a program for `5 concurrent`, got none: write `-- PROGRAM`"),
    ("check a --limit 5/s --limit 5concurrent --wait 1s", 2, "`check` must have a program for `5 concurrent`"),
    ("check a --limit 5concurrent --", 2, "`--` must have a program behind it, got none"),
    ("check a --limit 5concurrent --end-on-loss", 2, "the following required arguments were not provided:\n  <CMD>..."),
    ("check a --limit 5/s --end-on-loss -- true", 2, "`--end-on-loss` must have a limit of concurrent calls, got none"),
    ("check a --limit 5/s --algorithm concurrent", 2, "invalid value 'concurrent'"),
    ("check a --limit 5/s --algorithm token_bucket --burst 0", 2, "`--burst` must be at least 1, got 0"),
    (
        "check a@b@ --limit 5/s",
        2,
        "`KEY` must be encoded as in Redis, such as `user:@42`, got another text: write `a%40b%40`",
    ),
    ("check a%41 --limit 5/s", 2, "`KEY` must be encoded as in Redis"),
    ("rules set", 2, "the following required arguments were not provided:\n  <RULE>"),
    ("rules set getId", 2, "`rules set` must have a setting, got none: write a limit such as `50/10s`, or an option"),
    ("rules set getId -5/10s", 2, "unexpected argument '-5' found"),
    ("rules set getId 5/10s --bust 3", 2, "a similar argument exists: '--burst'"),
    ("rules set getId --mode shadwo", 2, "a similar value exists: 'shadow'"),
    ("rules set getId --match 42", 2, "a match must be PART=VALUE: write one such as `user_id=42`"),
    ("rules set getId 5/s --match a=1 --key b", 2, "cannot be used with"),
    ("rules history -n 0", 2, "0 is not in 1..=65535"),
    ("rules edit", 2, "`rules edit` must have a terminal, got none: use `rules export`, an editor, and `rules import`"),
    ("rules lint no-such-file", 2, "no-such-file cannot be read: No such file or directory"),
    ("rules lint /", 2, "/ cannot be read: Is a directory"),
    ("rules lint /dev/zero", 2, "/dev/zero must have at most 16 MB, got more: remove rules that are not used"),
    ("rules import /dev/zero", 2, "/dev/zero must have at most 1 MB, got more: remove rules that are not used"),
    ("rules diff /dev/zero", 2, "/dev/zero must have at most 1 MB, got more"),
    ("--url-file /dev/zero rules list", 2, "/dev/zero must have at most 64 kB, got more: write one line"),
    ("--hash-keys no-such-file rules list", 2, "no-such-file cannot be read"),
    ("--url memory: check a --limit 5/s", 2, "the URL must be that of a Redis for `check`, got `memory:`"),
    ("--url memory: rules list", 2, "the URL must be that of a Redis for `rules`, got `memory:`"),
    ("--url htp://x check a --limit 5/s", 2, "error: "),
    ("--url redis://127.0.0.1 --url-file f rules list", 2, "cannot be used with"),
    ("--prefix a/b rules list", 2, "`prefix` must be"),
    ("completions tcsh", 2, "possible values: bash"),
];

#[test]
fn each_wrong_command_line_has_a_message() {
    for (line, code, message) in WITHOUT_STORE {
        let arguments: Vec<_> = line.split_whitespace().collect();
        // Nothing listens there, and no message is about it.
        limiter("redis://127.0.0.1:1", &arguments).failed(*code, message);
    }
}

#[test]
fn a_missing_url_names_the_ways_to_set_it() {
    let message =
        "the URL of the store must be set, got none: set RATE_LIMITED_URL, or write `--url-file FILE` or `--url";
    limiter("", &["rules", "list"]).failed(2, message);
}

#[test]
fn errors_are_json_on_request() {
    let ran = limiter("", &["--json", "check", "a", "--limit", "5"]);
    assert_eq!((ran.code, &*ran.stdout), (Some(2), ""));
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).expect("JSON");
    assert_eq!(error["error"]["kind"], "usage");
    let message = error["error"]["message"].as_str().expect("a text");
    assert!(message.starts_with("invalid value '5' for '--limit <LIMIT>': `limit` must be"), "{message}");
}

/// Texts, with a part of the message.
const TEXTS: &[(&[u8], &str)] = &[
    (b"", "the text must have rules, got an empty one: write `#` to have none"),
    (b" \n\n", "the text must have rules, got an empty one"),
    (b"[rules.a]\nlimt = '5/s'\n", "line 2, column 1: `limt` must be a setting of a rule, got an unknown name: write `limit`"),
    (b"[rules.a]\nlimit = '5/10parsecs'\n", "line 2, column 9: `limit` must be `permits/window`"),
    (b"[rules.a]\nlimit = '-5/s'\n", "line 2, column 9: `limit` must be"),
    (b"[rules.a]\nburst = -1\n", "line 2, column 9: `burst` must be"),
    (b"[rules.a]\nburst = 99999999999999999999\n", "line 2, column 9: "),
    (b"[rules.a]\nlimit = '5/s\n", "line 2, column "),
    (b"[rules.user:{id}]\nlimit = '5/s'\n", "write the name in quotes: `[rules.\"user:{id}\"]`"),
    (b"[rules.a]\nlimit = '5/s'\n[rules.a]\nmode = 'off'\n", "line 3, column "),
    (
        b"[[rules.a.override]]\nmatch = { u = '1' }\nmode = 'off'\n[[rules.a.override]]\nmatch = { u = 1 }\nmode = 'deny'\n",
        "line 5, column 9: ",
    ),
    (
        b"[rules.a]\nkey = 'user:{id}'\n[[rules.a.override]]\nmatch = { tenant = 'x' }\nmode = 'off'\n",
        "tenant",
    ),
    (b"[rules.a]\nx\xff = 1\n", "line 2, column 2: the text must be UTF-8, got the byte 0xff: use UTF-8 in the editor"),
    (b"retries = 3\n", "line 1, column 1: `retries` must be one of"),
    (b"strict = true\n", "line 1, column 1: `strict` must be left out of shared rules, got it: set it for each program"),
    (b"\n shared = true\n", "line 2, column 2: `shared` must be left out of shared rules"),
];

#[test]
fn each_wrong_text_has_a_message_with_its_line_and_publishes_nothing() {
    let server = server();
    for (text, message) in TEXTS {
        let ran = limiter_with_input(&server.url(), &["rules", "import", "-"], text);
        ran.failed(2, "error: standard input: ");
        ran.failed(2, message);
    }
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[test]
fn a_huge_file_is_rejected_before_it_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("huge.toml");
    File::create(&path).expect("a file").set_len(100 << 20).expect("a sparse file");
    let path = path.display().to_string();
    limiter("", &["rules", "lint", &path]).failed(2, "huge.toml must have at most 16 MB, got more");
    limiter("", &["rules", "import", &path]).failed(2, "huge.toml must have at most 1 MB, got more");
    limiter("", &["check", "a", "--rule", "r", "--rules", &path, "--url", "redis://127.0.0.1:1"])
        .failed(2, "huge.toml must have at most 16 MB, got more");
}

#[test]
fn arguments_that_are_not_utf_8_are_an_error() {
    let key = OsStr::from_bytes(b"user:\xff");
    let arguments = [OsStr::new("check"), key, OsStr::new("--limit"), OsStr::new("1/h")];
    limiter("redis://127.0.0.1:1", &arguments).failed(2, "invalid UTF-8 was detected in one or more arguments");
}

/// Changes of the shared rules below, which publish nothing.
const CHANGES: &[Case] = &[
    ("rules get getid", 2, "`RULE` must be one of the shared rules, got `getid`: write `getId`"),
    ("rules get upload", 2, "`RULE` must be one of the shared rules, got `upload`: `limiter rules list` shows them"),
    ("rules unset getID", 2, "`RULE` must be one of the shared rules, got `getID`: write `getId`"),
    ("rules unset getId --match id=1", 2, "`--match` and `--key` must be those of an override of `getId`, got others"),
    ("rules set getId 5/s --algorithm fixed_window --burst 3 -y", 2, "burst"),
    ("rules set getId --burst 0", 2, "line 3, column 9: `burst` must be"),
    ("rules set getId --deadline 2min", 2, "line 3, column 12: `deadline` must be"),
    ("rules set getId --key user@1@ --mode deny", 2, "line 5, column 7: `encoded` must"),
    (
        "rules set user:{id} --match ix=1 --mode deny",
        2,
        "`--match` must name parts of `user:{id}`, got `ix`: write `id`",
    ),
    ("rules set getId --match ix=1 --match ix=2 --mode deny", 2, "`--match` must name each part once, got `ix` twice"),
    ("rules set getId --mode off --who two\u{7}lines", 2, "`who` must be one line of plain text"),
    (
        "rules set getId 6/min",
        2,
        "`--yes` must be given for a change that starts new counts, since there is no terminal",
    ),
    (
        "rules set getid 10/s",
        2,
        "`--yes` must be given for a change that adds a rule whose name differs from another one only in case or punctuation",
    ),
    (
        "rules set getId 6/s --if-version 9",
        4,
        "the shared rules must be at version 9 by `--if-version`, got version 1 of ana@",
    ),
    ("rules rollback 7", 2, "`VERSION` must be one of the history, 1 to 1, got 7: `limiter rules history` lists them"),
];

#[test]
fn each_wrong_change_has_a_message_and_publishes_nothing() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "getId", "5/s"]).ok();
    for (line, code, message) in CHANGES {
        let arguments: Vec<_> = line.split_whitespace().collect();
        limiter(&server.url(), &arguments).failed(*code, message);
    }
    assert_eq!(limiter(&server.url(), &["rules", "export"]).ok(), "[rules.getId]\nlimit = \"5/s\"\n");
    assert_eq!(limiter(&server.url(), &["--json", "rules", "list"]).json()["version"], 1);
}

#[test]
fn a_text_for_a_newer_version_is_shown_and_not_changed() {
    let server = server();
    let text = "[rules.getId]\nlimit = '5/s'\njitter = '5ms'\n";
    server.command(&["SET", "rl-rules:{rules}:version", "9 0"]);
    server.command(&["SET", "rl-rules:{rules}:toml", text]);
    assert_eq!(limiter(&server.url(), &["rules", "export"]).ok(), text);
    let message =
        "version 9 of the shared rules cannot be changed by this version of `limiter`: line 3, column 1: `jitter` must";
    for line in ["rules set getId 6/s", "rules unset getId"] {
        let arguments: Vec<_> = line.split_whitespace().collect();
        limiter(&server.url(), &arguments).failed(2, message);
    }
    limiter(&server.url(), &["check", "a", "--rule", "getId"])
        .failed(2, "version 9 of the shared rules cannot be read: line 3, column 1: `jitter` must");
    assert_eq!(limiter(&server.url(), &["rules", "export"]).ok(), text);
    limiter_with_input(&server.url(), &["rules", "import", "-"], b"[rules.getId]\nlimit = '6/s'\n").ok();
    assert_eq!(limiter(&server.url(), &["--json", "rules", "list"]).json()["version"], 10);
}

/// A limiter accepts them, so they are warnings.
#[test]
fn overrides_that_change_nothing_pass_lint_with_a_warning() {
    let text = "[rules.api]\nlimit = '100/min'\n[[rules.api.override]]\nmatch = { ip = '10.0.0.1/8' }\nmode = 'deny'\n\
                [[rules.api.override]]\nmatch = { ip = '2001:db8::9' }\nmode = 'deny'\n\
                [[rules.other.override]]\nmatch = { user = '7' }\n";
    let ran = limiter_with_input("", &["rules", "lint", "-"], text.as_bytes());
    let warning = "warning: standard input: ";
    let lines: Vec<_> = ran.stderr.lines().collect();
    let starts = [
        "line 4, column 9: `api` has an override by `ip` with `10.0.0.1/8`, which is no network",
        "line 7, column 9: `api` has an override by `ip` with `2001:db8::9`, which matches no request of a layer",
        "line 10, column 9: an override of `other` has no settings, so it changes nothing",
    ];
    assert_eq!(lines.len(), starts.len(), "{ran:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(&format!("{warning}{start}")), "{line}");
    }
    assert_eq!(ran.ok(), "standard input: correct, 2 rules, 3 overrides\n");
    let no_part = "[rules.api]\nkey = 'api:ip:{ip}'\n[[rules.api.override]]\nmatch = { user = '7' }\nmode = 'deny'\n";
    let message =
        "line 4, column 9: override 1 of the rule `api`: `match` must name parts of the key `api:ip:{ip}`, got `user`";
    limiter_with_input("", &["rules", "lint", "-"], no_part.as_bytes()).failed(2, message);
}

#[test]
fn a_postpaid_rule_passes_lint_with_a_warning() {
    let text = "[rules.api]\nlimit = '9/m'\npostpaid = true\n[rules.other]\nlimit = '9/m'\npostpaid = false\n\
                [[rules.other.override]]\nmatch = { user = '7' }\npostpaid = true\n";
    let ran = limiter_with_input("", &["rules", "lint", "-"], text.as_bytes());
    let warned: Vec<_> = ran.stderr.lines().collect();
    let of =
        |rule| format!("warning: standard input: `{rule}` has `postpaid`, which does not bound what starts at once");
    assert_eq!(warned.len(), 2, "{ran:?}");
    assert!(warned[0].starts_with(&of("api")) && warned[1].starts_with(&of("other")), "{ran:?}");
    assert_eq!(ran.ok(), "standard input: correct, 2 rules, 1 override\n");
}

#[test]
fn a_file_for_one_program_passes_lint_with_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.toml");
    fs::write(&path, "strict = true\n[rules.a]\nlimit = '5/s'\n").expect("written");
    let ran = limiter("", &["rules", "lint", &path.display().to_string()]);
    assert!(ran.stderr.starts_with("warning: "), "{ran:?}");
    assert!(ran.ok().ends_with("rules.toml: correct, 1 rule, 0 overrides\n"));
}
