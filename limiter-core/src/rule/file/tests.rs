use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use limiter_testkit::{Random, full_or};
use tempfile::TempDir;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{OpenedFile, WatchIntervals, Watcher};
use crate::rule::text::MAX_BYTES;
use crate::rule::text::tests::{EXAMPLE, mutated};
use crate::rule::{Origin, RuleTable, RulesStatus};
use crate::{ErrorKind, RuleSet};

const FIRST: &str = "[rules.a]\nlimit = \"5/10s\"\n";
const SECOND: &str = "[rules.a]\nlimit = \"6/10s\"\n[rules.b]\nmode = \"off\"\n";

const OVERRIDE: &str = "[rules.\"a:{id}\"]\nlimit = \"5/s\"\n\n[[rules.\"a:{id}\".override]]\nmatch = { id = \"1\" }\n";

/// A file that a test checks by hand, with the rules that follow it.
struct FollowedFile {
    directory: TempDir,
    path: PathBuf,
    watcher: Watcher,
    status: Arc<RulesStatus>,
    rules: Arc<RuleTable>,
    writes: Cell<u64>,
}

impl FollowedFile {
    fn new(text: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("rules.toml");
        fs::write(&path, text).expect("written");
        Self::at(directory, &path)
    }

    fn at(directory: TempDir, path: &Path) -> Self {
        let OpenedFile { path, reading, rules, .. } = OpenedFile::read(path).expect("good rules");
        let table = Arc::new(RuleTable::of_environment());
        table.set(Origin::File, rules).expect("good rules");
        let (status, rules) = (Arc::new(RulesStatus::new(Origin::File)), Arc::clone(&table));
        let apply = Box::new(move |rules| table.set(Origin::File, rules));
        let watcher = Watcher::new(path.clone(), reading, WatchIntervals::default(), Arc::clone(&status), apply);
        Self { directory, path, watcher, status, rules, writes: Cell::new(0) }
    }

    /// Writes the file, with another time than before: those of a file system may be too coarse for a test.
    fn write(&self, content: impl AsRef<[u8]>) {
        self.writes.set(self.writes.get() + 1);
        self.write_at(SystemTime::UNIX_EPOCH + Duration::from_secs(self.writes.get()), content);
    }

    /// Writes the file with this time.
    fn write_at(&self, time: SystemTime, content: impl AsRef<[u8]>) {
        fs::write(&self.path, content).expect("written");
        File::options().write(true).open(&self.path).and_then(|file| file.set_modified(time)).expect("set");
    }

    fn modified(&self) -> SystemTime {
        fs::metadata(&self.path).and_then(|metadata| metadata.modified()).expect("a time")
    }

    /// Checks the file once. Returns true if another check is to follow at once, for a second reading.
    fn check(&mut self) -> bool {
        let WatchIntervals { check, settle, .. } = WatchIntervals::default();
        match self.watcher.check() {
            wait if wait == settle => true,
            wait if wait == check => false,
            wait => panic!("{wait:?}"),
        }
    }

    /// Checks the file until it has settled.
    fn settle(&mut self) {
        let checks = (0..10).find(|_| !self.check());
        assert!(checks.is_some(), "the file does not settle");
    }

    fn rules(&self) -> String {
        in_force(&self.rules)
    }

    fn error(&self) -> Option<String> {
        let error = self.status.error()?;
        assert_eq!(error.kind(), ErrorKind::Config);
        let (path, problem) = error.to_string().split_once(": ").map(|(a, b)| (a.to_owned(), b.to_owned()))?;
        assert_eq!(path, self.path.display().to_string());
        Some(problem)
    }
}

fn in_force(rules: &RuleTable) -> String {
    format!("{:?}", rules.in_force())
}

/// Returns the rules in force with this file.
fn rules_of(text: &str) -> String {
    let table = RuleTable::of_environment();
    table.set(Origin::File, text.parse().expect("good rules")).expect("good rules");
    in_force(&table)
}

#[test]
fn a_changed_file_is_in_force_when_two_readings_agree() {
    let mut file = FollowedFile::new(FIRST);
    assert_eq!(file.rules(), rules_of(FIRST));
    for text in [SECOND, FIRST, "#", SECOND] {
        let before = file.rules();
        file.settle();
        file.write(text);
        assert!(file.check(), "one reading is not enough");
        assert_eq!(file.rules(), before);
        assert!(!file.check());
        assert_eq!((file.rules(), file.status.errors()), (rules_of(text), 0));
    }
}

/// The rules of another level can change, so a text that contradicts them is not wrong in itself.
#[test]
fn a_file_that_another_level_contradicts_is_tried_again() {
    let mut file = FollowedFile::new(FIRST);
    file.settle();
    let with_key = |key: &str| format!("[rules.a]\nkey = \"a:{{{key}}}\"\n");
    file.rules.set(Origin::Runtime, with_key("one").parse().expect("good rules")).expect("good rules");
    file.write(with_key("other"));
    file.settle();
    assert!(file.error().is_some_and(|error| error.contains("in all sets of rules")));
    let checks = WatchIntervals::default().checks_per_read;
    (0..2 * checks).for_each(|_| assert!(!file.check()));
    assert_eq!(file.status.errors(), 1);
    file.rules.set(Origin::Runtime, RuleSet::new()).expect("no rules");
    (0..checks).for_each(|_| assert!(!file.check()));
    assert_eq!((file.error(), file.status.errors()), (None, 1));
    assert_eq!(file.rules(), rules_of(&with_key("other")));
}

/// A writer that stops after it has emptied the file must not turn all limits off.
#[test]
fn an_emptied_file_leaves_the_last_rules_in_force() {
    let mut file = FollowedFile::new(FIRST);
    for text in ["", " \n", "\u{feff}", "\u{feff}\r\n"] {
        file.settle();
        file.write(text);
        assert!(file.check() && !file.check());
        assert_eq!((file.rules(), file.status.errors()), (rules_of(FIRST), 1), "{text:?}");
    }
}

#[test]
fn a_file_that_is_being_written_is_not_used() {
    let mut file = FollowedFile::new(FIRST);
    let mut written = String::new();
    for line in SECOND.lines() {
        written += line;
        written += "\n";
        file.write(&written);
        assert!(file.check());
        assert_eq!(file.rules(), rules_of(FIRST), "{written}");
    }
    assert!(!file.check());
    assert_eq!((file.rules(), file.status.errors()), (rules_of(SECOND), 0));
}

#[test]
fn a_file_that_was_being_written_at_the_start_is_read_again() {
    let mut file = FollowedFile::new(FIRST);
    assert_eq!(file.watcher.settle(), Duration::from_millis(200));
    // Its stamp does not show the change.
    file.write_at(file.modified(), FIRST.replace('5', "7"));
    file.settle();
    assert_eq!(file.rules(), rules_of(&FIRST.replace('5', "7")));
}

#[test]
fn a_change_that_the_stamp_does_not_show_is_found_by_the_bytes() {
    let mut file = FollowedFile::new(FIRST);
    file.settle();
    file.write_at(file.modified(), FIRST.replace('5', "7"));
    let checks = (1..100).find(|_| file.check());
    assert_eq!(checks, Some(WatchIntervals::default().checks_per_read));
    assert!(!file.check());
    assert_eq!(file.rules(), rules_of(&FIRST.replace('5', "7")));
}

/// A change that makes a file unusable.
type Break = fn(&FollowedFile);

#[test]
fn the_last_good_rules_survive_every_bad_file() {
    let broken: [(&str, Break, &str); 10] = [
        ("a mistake", |file| file.write("[rules.a]\nlimit = \"5/10x\""), "line 2, column 9: `limit` must be "),
        ("cut off", |file| file.write(&SECOND[..SECOND.len() - 3]), "line 4, column 11: the text must be TOML"),
        ("not UTF-8", |file| file.write(b"# \xFF"), "line 1, column 3: the text must be UTF-8"),
        (
            "too long",
            |file| file.write("#".repeat(MAX_BYTES + 1)),
            "line 1, column 1: the text must have at most 16 MB",
        ),
        ("newer", |file| file.write(format!("{SECOND}[tenants.b]")), "line 5, column 2: `tenants` must be one of"),
        ("too short", |file| file.write("[rules.a]\ndeadline = \"0s\""), "line 2, column 12: `deadline` must be"),
        ("a part that the key lacks", |file| file.write(OVERRIDE.replace("id =", "di =")), "line 5, column 9: "),
        ("another part", |file| file.write(OVERRIDE.replace("{ id", "{ a = \"\", id")), "line 5, column 9: "),
        (
            "deleted",
            |file| fs::remove_file(&file.path).expect("a file"),
            "`rules_file` must be a file that can be read",
        ),
        ("a directory", |file| fs::create_dir(&file.path).expect("no file"), "`rules_file` must be a file, got a dir"),
    ];
    let mut file = FollowedFile::new(FIRST);
    file.settle();
    for (errors, (name, break_file, message)) in (1..).zip(broken) {
        if file.path.is_dir() {
            fs::remove_dir(&file.path).expect("empty");
        }
        break_file(&file);
        file.settle();
        assert_eq!((file.rules(), file.status.errors()), (rules_of(FIRST), errors), "{name}");
        let error = file.error().expect(name);
        assert!(error.starts_with(message), "{name}: {error}");
        // It is not an error of its own with every check.
        (0..100).for_each(|_| assert!(!file.check()));
        assert_eq!(file.status.errors(), errors, "{name}");
    }
    fs::remove_dir(&file.path).expect("empty");
    file.write(SECOND);
    file.settle();
    assert_eq!((file.rules(), file.error(), file.status.errors()), (rules_of(SECOND), None, 10));
}

#[test]
fn a_file_that_returns_as_it_was_has_no_error() {
    let mut file = FollowedFile::new(FIRST);
    file.settle();
    fs::remove_file(&file.path).expect("a file");
    file.settle();
    assert!(file.error().is_some());
    file.write(FIRST);
    file.settle();
    assert_eq!((file.rules(), file.error(), file.status.errors()), (rules_of(FIRST), None, 1));
}

#[test]
fn a_rename_over_the_file_is_followed() {
    let mut file = FollowedFile::new(FIRST);
    file.settle();
    let new = file.directory.path().join("new");
    // With the length and the time of the first file: its inode shows the change.
    let text = FIRST.replace('5', "7");
    fs::write(&new, &text).expect("written");
    File::options().write(true).open(&new).and_then(|new| new.set_modified(file.modified())).expect("set");
    fs::rename(&new, &file.path).expect("renamed");
    assert!(file.check() || cfg!(not(unix)));
    file.settle();
    assert!(file.rules() == rules_of(&text) || cfg!(not(unix)));
}

/// The files of a volume of Kubernetes: links to a directory behind a link that is replaced.
#[cfg(unix)]
#[test]
fn the_swap_of_a_config_map_is_followed() {
    use std::os::unix::fs::symlink;

    let directory = TempDir::new().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let version = |name: &str, text: &str| {
        fs::create_dir(at(name)).expect("a directory");
        fs::write(at(name).join("rules.toml"), text).expect("written");
        symlink(name, at("..data_tmp")).expect("a link");
        fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
    };
    version("..2026_01", FIRST);
    symlink("..data/rules.toml", at("rules.toml")).expect("a link");
    let path = at("rules.toml");
    let mut file = FollowedFile::at(TempDir::new().expect("a directory"), &path);
    file.settle();
    version("..2026_02", SECOND);
    fs::remove_dir_all(at("..2026_01")).expect("removed");
    file.settle();
    assert_eq!((file.rules(), file.status.errors()), (rules_of(SECOND), 0));
    // A version without the file.
    fs::create_dir(at("..2026_03")).expect("a directory");
    symlink("..2026_03", at("..data_tmp")).expect("a link");
    fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
    file.settle();
    assert_eq!((file.rules(), file.status.errors()), (rules_of(SECOND), 1));
}

#[test]
fn any_bytes_in_the_file_change_everything_or_nothing() {
    let mut random = Random::new(5);
    let mut file = FollowedFile::new(EXAMPLE);
    file.settle();
    let mut used = 0;
    for _ in 0..full_or(1000, 200) {
        let before = file.rules();
        let bytes = match random.below(4) {
            0 => (0..random.below(100)).map(|_| random.any().to_le_bytes()[0]).collect(),
            _ => mutated(EXAMPLE, &mut random),
        };
        file.write(&bytes);
        file.settle();
        match file.error() {
            Some(_) => assert_eq!(file.rules(), before),
            None => {
                let text = std::str::from_utf8(&bytes).expect("a text");
                assert_eq!(file.rules(), rules_of(text));
                used += 1;
            }
        }
    }
    assert!(used > 0);
}

/// The levels and texts of log events.
#[derive(Clone, Default)]
struct LogLines {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    panics: bool,
}

impl LogLines {
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.lines.lock().expect("no panic"))
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        assert!(!self.panics, "a panic of the subscriber");
        let mut line = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line += &format!("{field}={value:?} ");
        });
        self.lines.lock().expect("no panic").push((*event.metadata().level(), line));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_gets_one_line_for_each_change() {
    let log = LogLines::default();
    let mut file = FollowedFile::new(FIRST);
    tracing::subscriber::with_default(log.clone(), || {
        let mut lines_for = |content: &str| {
            file.write(content);
            file.settle();
            (0..100).for_each(|_| assert!(!file.check()));
            log.take()
        };
        assert_eq!(lines_for(FIRST), []);
        let mistake = "[rules.a]\nlimit = \"5/10x\"";
        let [(Level::ERROR, line)] = &lines_for(mistake)[..] else { panic!("one error") };
        assert!(line.contains("rules.toml: line 2, column 9: `limit` must be"), "{line}");
        assert!(line.contains("its last good rules stay in force"), "{line}");
        // The same mistake in another text.
        assert_eq!(lines_for(&format!("{mistake}\n# as before")), []);
        let [(Level::ERROR, line)] = &lines_for("\n[rules")[..] else { panic!("one error") };
        assert!(line.contains("line 2, column 7"), "{line}");
        let [(Level::INFO, line)] = &lines_for(SECOND)[..] else { panic!("one line") };
        assert!(line.contains("rules=2"), "{line}");
        // After it was corrected it is another one.
        assert_eq!(lines_for(mistake).len(), 1);
    });
    assert_eq!(file.status.errors(), 3);
}

#[test]
fn a_panicking_subscriber_does_not_end_the_checks() {
    let mut file = FollowedFile::new(FIRST);
    tracing::subscriber::with_default(LogLines { panics: true, ..LogLines::default() }, || {
        for text in ["[", SECOND, "]", FIRST] {
            file.write(text);
            file.settle();
        }
    });
    assert_eq!((file.rules(), file.error()), (rules_of(FIRST), None));
}

/// Waits for a condition, for far longer than it takes on a busy machine.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "not {what}");
        thread::yield_now();
    }
}

#[test]
fn the_thread_follows_the_file_until_the_watch_is_dropped() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("rules.toml");
    fs::write(&path, FIRST).expect("written");
    let table = Arc::new(RuleTable::of_environment());
    let file = OpenedFile::read(&path).expect("good rules");
    let millisecond = Duration::from_millis(1);
    let intervals = WatchIntervals { check: millisecond, settle: millisecond, checks_per_read: 2 };
    let applied = Arc::clone(&table);
    let watch = file.watch(intervals, move |rules| applied.set(Origin::File, rules)).expect("a thread");
    for text in [SECOND, FIRST] {
        fs::write(&path, text).expect("written");
        wait_until("in force", || in_force(&table) == rules_of(text));
    }
    fs::remove_file(&path).expect("a file");
    wait_until("an error", || watch.status().error().is_some());
    assert_eq!(Arc::strong_count(&table), 2);
    drop(watch);
    wait_until("the end of the thread", || Arc::strong_count(&table) == 1);
}

#[test]
fn a_bad_file_at_the_start_is_an_error_with_its_path() {
    let directory = TempDir::new().expect("a directory");
    let missing = directory.path().join("missing.toml");
    let broken = directory.path().join("broken.toml");
    fs::write(&broken, "[rules.a]\nlimit = 5").expect("written");
    for (path, problem) in [
        (&missing, "`rules_file` must be a file that can be read, got "),
        (&broken, "line 2, column 9: `limit` must be "),
        (&directory.path().to_owned(), "`rules_file` must be a file, got a directory or a device: "),
    ] {
        let error = OpenedFile::read(path).map(drop).expect_err("a bad file");
        let expected = format!("{}: {problem}", path.display());
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
