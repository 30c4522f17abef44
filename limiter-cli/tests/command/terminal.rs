//! Commands on a terminal, which `script` of util-linux provides.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::mem;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use limiter_testkit::{LiveLimiters, RedisServer};

use crate::support::{limiter, server};

/// The longest wait for the program, on a machine under any load.
const PATIENCE: Duration = Duration::from_secs(300);

/// The program on a terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    fn start(server: &RedisServer, arguments: &str, variables: &[(&str, &Path)]) -> Self {
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_limiter"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("USER", "ana").env("SHELL", "/bin/sh");
        command.env("RATE_LIMITED_URL", server.url()).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("`script` of util-linux starts");
        let keyboard = child.stdin.take().expect("a pipe");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, screen) = mpsc::channel();
        // It ends with the program, or with the first error: Linux ends a terminal without a process by one.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = stdout.read(&mut bytes) {
                if sender.send(bytes[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keyboard, screen, shown: String::new() }
    }

    /// Waits until a text is shown.
    fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.is_shown_more(), "{text:?} is not shown: {}", self.shown);
        }
    }

    /// Receives what is shown next. Returns `false` at the end.
    fn is_shown_more(&mut self) -> bool {
        match self.screen.recv_timeout(PATIENCE) {
            Ok(bytes) => {
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
                true
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("the program shows nothing more: {}", self.shown),
        }
    }

    fn write(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).and_then(|()| self.keyboard.flush()).expect("the terminal reads");
    }

    /// Returns the exit code and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        while self.is_shown_more() {}
        (self.child.wait().expect("`script` ends").code(), mem::take(&mut self.shown).replace("\r\n", "\n"))
    }
}

impl Drop for Terminal {
    /// Ends the program of a test that fails.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(server: &RedisServer, arguments: &str) -> Terminal {
    Terminal::start(server, arguments, &[])
}

fn limits(server: &RedisServer) -> String {
    limiter(&server.url(), &["rules", "export"]).ok()
}

/// Writes an editor that appends a line at each call: the first line first.
fn editor(directory: &Path, lines: &[&str]) -> std::path::PathBuf {
    let (path, calls) = (directory.join("editor"), directory.join("calls"));
    let cases: String =
        (1..).zip(lines).map(|(call, line)| format!("{call}) printf '{line}\\n' >> \"$1\" ;;\n")).collect();
    let calls = calls.display();
    let script = format!("#!/bin/sh\necho >> {calls}\ncase $(wc -l < {calls}) in\n{cases}esac\n");
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("executable");
    path
}

#[test]
fn top_is_renewed_in_place_until_it_is_ended() {
    let server = server();
    let write = |denied: u32| {
        let text = format!("1 00000000000000aa web-1 12 checkout\nr search 1000 d{denied}+1\n");
        LiveLimiters::on(&server).add_activity(&text);
    };
    write(4711);
    let mut top = start(&server, "top --every 100ms");
    top.wait_for("4711");
    write(4712);
    top.wait_for("4712");
    assert!(top.shown.matches("\u{1b}[H").count() > 1, "{:?}", top.shown);
    top.write("\u{3}");
    let _ = top.end();
}

#[test]
fn a_change_that_starts_new_counts_is_confirmed() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "getId", "5/10s"]).ok();
    let mut no = start(&server, "rules set getId 5/min");
    no.wait_for("Publish this? [y/N]");
    no.write("n\n");
    let (code, shown) = no.end();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("the window changes from 10 s to 1 min"), "{shown}");
    assert!(shown.contains("nothing was published: the change was not confirmed"), "{shown}");
    assert_eq!(limits(&server), "[rules.getId]\nlimit = \"5/10s\"\n");
    let mut yes = start(&server, "rules set getId 5/min");
    yes.wait_for("Publish this? [y/N]");
    yes.write("y\n");
    let (code, shown) = yes.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\u{1b}[32mversion 2 is published\u{1b}[0m"), "{shown}");
    assert_eq!(limits(&server), "[rules.getId]\nlimit = \"5/min\"\n");
}

#[test]
fn a_change_of_the_permits_alone_needs_no_confirmation() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "getId", "5/10s"]).ok();
    let (code, shown) = start(&server, "rules set getId 50/10s").end();
    assert_eq!((code, shown.contains("Publish this?")), (Some(0), false), "{shown}");
}

#[test]
fn a_terminal_without_colours_gets_none() {
    let server = server();
    let variables = [("NO_COLOR", Path::new("1"))];
    let (code, shown) = Terminal::start(&server, "rules set getId 5/10s", &variables).end();
    assert_eq!((code, shown.contains("version 1 is published")), (Some(0), true), "{shown}");
    let (_, table) = Terminal::start(&server, "rules list", &variables).end();
    assert!(!shown.contains('\u{1b}') && !table.contains('\u{1b}'), "{shown}{table}");
    let (_, table) = Terminal::start(&server, "rules list", &[("TERM", Path::new("dumb"))]).end();
    assert!(!table.contains('\u{1b}'), "{table}");
    let (_, table) = start(&server, "rules list").end();
    let mut plain = table.clone();
    while let Some((before, after)) = plain.split_once("\u{1b}[") {
        plain = format!("{before}{}", after.split_once('m').expect("the end of a colour").1);
    }
    let columns: Vec<_> = plain.lines().skip(1).map(|line| line.find("LIMITS").or(line.find("5/10s"))).collect();
    assert_eq!(columns, [Some(7), Some(7)], "{table}");
}

#[test]
fn sigint_at_the_question_publishes_nothing() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "getId", "5/10s"]).ok();
    let mut terminal = start(&server, "rules set getId 5/min");
    terminal.wait_for("Publish this? [y/N]");
    terminal.write("\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("nothing was published: it was interrupted"), "{shown}");
    assert_eq!(limits(&server), "[rules.getId]\nlimit = \"5/10s\"\n");
}

#[test]
fn of_two_changes_at_once_the_later_shows_the_other() {
    let server = server();
    limiter(&server.url(), &["rules", "set", "getId", "5/10s"]).ok();
    let mut later = start(&server, "rules set getId 5/min --why slow");
    later.wait_for("Publish this? [y/N]");
    limiter(&server.url(), &["rules", "set", "getId", "7/10s", "--who", "ben", "--why", "launch"]).ok();
    later.write("y\n");
    let (code, shown) = later.end();
    assert_eq!(code, Some(4), "{shown}");
    let message = "the shared rules must be at version 1 to be changed, got version 2 of ben, ";
    assert!(shown.contains(message) && shown.contains("nothing was published, repeat the command"), "{shown}");
    assert!(shown.contains("-limit = \"5/10s\"\n+limit = \"7/10s\""), "{shown}");
    assert_eq!(limits(&server), "[rules.getId]\nlimit = \"7/10s\"\n");
}

#[test]
fn an_edited_text_is_published() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let editor = editor(directory.path(), &["[rules.search]", "limit = \"1/s\""]);
    for variable in ["EDITOR", "VISUAL"] {
        let terminal = Terminal::start(&server, "rules edit", &[(variable, &editor), ("TMPDIR", directory.path())]);
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(0), "{shown}");
    }
    assert_eq!(limits(&server), "[rules.search]\nlimit = \"1/s\"\n");
    let left: Vec<_> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_text_with_a_mistake_is_edited_again_or_discarded() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let editor = editor(directory.path(), &["[rules.search]\\nlimt = \"1/s\"", "[rules.x]\\nlimit = \"1/s\"", "x"]);
    let mut terminal = Terminal::start(&server, "rules edit", &[("EDITOR", &editor), ("TMPDIR", directory.path())]);
    let question = "Press Enter to edit the text again, or write q to discard it:";
    terminal.wait_for(question);
    assert!(terminal.shown.contains("line 2, column 1: `limt` must be"), "{}", terminal.shown);
    terminal.shown.clear();
    terminal.write("\n");
    terminal.wait_for(question);
    terminal.write("q\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("nothing was published: the text was discarded"), "{shown}");
    assert!(server.keys().is_empty());
}

#[test]
fn an_edited_text_survives_a_conflict() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let editor = directory.path().join("editor");
    let change = format!("{} rules set other 1/s", env!("CARGO_BIN_EXE_limiter"));
    let script = format!("#!/bin/sh\n{change} > /dev/null 2>&1\nprintf '[rules.mine]\\nlimit = \"2/s\"\\n' > \"$1\"\n");
    fs::write(&editor, script).expect("written");
    fs::set_permissions(&editor, Permissions::from_mode(0o700)).expect("executable");
    let terminal = Terminal::start(&server, "rules edit", &[("EDITOR", &editor), ("TMPDIR", directory.path())]);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(4), "{shown}");
    assert_eq!(limits(&server), "[rules.other]\nlimit = \"1/s\"\n");
    let (_, path) = shown.split_once("the edited text is in ").expect("the path is shown");
    let path = path.lines().next().expect("a line");
    assert_eq!(fs::read_to_string(path).expect("the text is kept"), "[rules.mine]\nlimit = \"2/s\"\n");
}

#[test]
fn an_editor_that_fails_publishes_nothing() {
    let server = server();
    let terminal = Terminal::start(&server, "rules edit", &[("EDITOR", Path::new("false"))]);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("nothing was published: the editor `false` ended with code 1"), "{shown}");
    let terminal = Terminal::start(&server, "rules edit", &[("EDITOR", Path::new("no-such-editor"))]);
    let (code, shown) = terminal.end();
    assert_eq!((code, shown.contains("the editor `no-such-editor` ended with code 127")), (Some(2), true), "{shown}");
}

/// Returns the kept texts of `rules edit` in a directory.
fn kept(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let copies = entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    copies.map(|path| fs::read_to_string(path).expect("a text")).collect()
}

/// Writes an executable file.
fn program(directory: &Path, script: &str) -> std::path::PathBuf {
    let path = directory.join("editor");
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("executable");
    path
}

#[test]
fn an_edited_text_is_kept_unless_it_is_published_or_discarded() {
    const MISTAKE: &str = "[rules.a]\nlimt = \"1/s\"\n";
    let server = server();
    let cases = [("\u{3}", Some(130), 1), ("\u{4}", Some(2), 1), ("\n", Some(2), 1), ("q\n", Some(2), 0)];
    for (keys, expected, copies) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        // The second round fails.
        let script = "#!/bin/sh\n[ -s \"$1\" ] && exit 1\nprintf '[rules.a]\\nlimt = \"1/s\"\\n' > \"$1\"\n";
        let editor = program(directory.path(), script);
        let variables = [("EDITOR", &*editor), ("TMPDIR", directory.path())];
        let mut terminal = Terminal::start(&server, "rules edit", &variables);
        terminal.wait_for("or write q to discard it:");
        terminal.write(keys);
        let (code, shown) = terminal.end();
        assert_eq!((code, kept(directory.path())), (expected, vec![MISTAKE.to_owned(); copies]), "{keys:?}: {shown}");
        assert_eq!(shown.contains("the edited text is in "), copies == 1, "{keys:?}: {shown}");
    }
}

#[test]
fn a_dry_run_keeps_the_edited_text_and_deletes_an_unchanged_one() {
    let server = server();
    for (script, copies) in [("#!/bin/sh\nprintf '[rules.a]\\nlimit = \"1/s\"\\n' > \"$1\"\n", 1), ("#!/bin/sh\n", 0)] {
        limiter(&server.url(), &["rules", "set", "b", "1/s"]).ok();
        let directory = tempfile::tempdir().expect("a directory");
        let editor = program(directory.path(), script);
        let variables = [("EDITOR", &*editor), ("TMPDIR", directory.path())];
        let (code, shown) = Terminal::start(&server, "rules edit --dry-run", &variables).end();
        assert_eq!((code, kept(directory.path()).len()), (Some(0), copies), "{shown}");
    }
}

#[test]
fn of_many_texts_that_are_edited_at_once_one_is_published() {
    const EDITORS: usize = 6;
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let open = directory.path().join("open");
    // All have read the text once all editors are open.
    let script = format!(
        "#!/bin/sh\necho $$ >> {open}\nn=0\nwhile [ $(wc -l < {open}) -lt {EDITORS} ] && [ $n -lt 3000 ]\n\
         do sleep 0.1; n=$((n + 1)); done\nprintf '[rules.r%s]\\nlimit = \"1/s\"\\n' $$ >> \"$1\"\n",
        open = open.display()
    );
    let editor = program(directory.path(), &script);
    let variables = [("EDITOR", &*editor), ("TMPDIR", directory.path())];
    let running: Vec<_> = (0..EDITORS).map(|_| Terminal::start(&server, "rules edit", &variables)).collect();
    let ended: Vec<_> = running.into_iter().map(Terminal::end).collect();
    let with = |code: i32| ended.iter().filter(|(found, _)| *found == Some(code)).count();
    assert_eq!((with(0), with(4)), (1, EDITORS - 1), "{ended:?}");
    assert_eq!(limits(&server).matches("[rules.r").count(), 1);
    assert_eq!(kept(directory.path()).len(), EDITORS - 1);
}

/// The terminal sends it to the program too, so the command does not pass on its own.
#[test]
fn a_program_in_the_foreground_gets_interrupts_from_its_terminal_alone() {
    let server = server();
    let trap = "trap \\\"echo interrupted\\\" INT";
    let program = format!("sh -c \"{trap}; kill -INT \\$PPID; sleep 0.1; echo ready; while :; do sleep 0.01; done\"");
    let check = format!("check backup --limit 1concurrent -- {program}");
    let mut terminal = Terminal::start(&server, &check, &[]);
    terminal.wait_for("ready");
    assert!(!terminal.shown.contains("interrupted"), "{}", terminal.shown);
    terminal.write("\u{3}");
    terminal.wait_for("interrupted");
    terminal.write("\u{1c}");
    terminal.end();
    assert!(server.keys().is_empty());
}
