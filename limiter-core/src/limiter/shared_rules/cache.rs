//! The file that keeps the last good text of the shared rules for the next process.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::store::redis::{CachedText, StoredText, StoredVersion};
use crate::{Error, ErrorKind};

/// The first line of a file of this kind.
const TITLE: &str = "rate-limited: the last good shared rules, form 1";
/// The start of the first line in every form.
const MARK: &[u8] = b"rate-limited: the last good shared rules";
/// The largest file: a text of 1 MB and the lines before it.
const MAX_BYTES: u64 = (1 << 20) + (1 << 16);

/// A cache file, and the place of the shared rules that it is for.
#[derive(Debug)]
pub(crate) struct SharedRulesCache {
    path: PathBuf,
    /// The servers, the database and the prefix, in one line.
    place: String,
}

/// The content of a cache file.
#[derive(Debug)]
pub(crate) enum Saved {
    /// There is no file.
    Nothing,
    Text(CachedText),
    /// The file cannot be used, for this reason. It will be replaced.
    Unusable(String),
}

impl SharedRulesCache {
    pub(crate) fn new(path: &Path, place: String) -> Self {
        // The program may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, place }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. It blocks for as long as the file system does.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a path that is no file, and for a file of another kind, which must not be replaced.
    pub(crate) fn read(&self) -> Result<Saved, Error> {
        let unreadable = |error: io::Error| Ok(Saved::Unusable(format!("it cannot be read ({error})")));
        match fs::metadata(&self.path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(self.problem("a directory or a device"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::Nothing),
            Err(error) => return unreadable(error),
        }
        let mut bytes = Vec::new();
        if let Err(error) = File::open(&self.path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)) {
            return unreadable(error);
        }
        if !bytes.starts_with(MARK) && !MARK.starts_with(&bytes) {
            return Err(self.problem("a file of another kind"));
        }
        match parse(&bytes) {
            None => Ok(Saved::Unusable("it is damaged, or of another version of the limiter".to_owned())),
            Some((place, _)) if place != self.place => {
                Ok(Saved::Unusable(format!("it is of other shared rules, {place}, and those here are {}", self.place)))
            }
            Some((_, saved)) => Ok(Saved::Text(saved)),
        }
    }

    fn problem(&self, found: &str) -> Error {
        let path = self.path.display();
        Error::new(
            ErrorKind::Config,
            format!(
                "`shared_rules_cache` must be a file that only limiters write, got {found}, {path}: write the path of a new file"
            ),
        )
    }

    /// Replaces the file at once, so that a reader never sees a part of it. It blocks for as long as the file system does.
    ///
    /// # Errors
    /// The failure of the file system.
    pub(crate) fn save(&self, text: &StoredText, now: SystemTime) -> io::Result<()> {
        let new = self.write_new(&to_bytes(&self.place, text, now))?;
        fs::rename(&new, &self.path).inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Writes a new file beside the cache, with a name that nobody can know before. Only this user may read it: overrides
    /// may have keys.
    fn write_new(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}.new", RandomState::new().hash_one(process::id())));
        let path = self.path.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        file.write_all(bytes).inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok(path)
    }
}

/// Returns the lines of the head, with the SHA-256 of the others and of the text, and behind them the text.
fn to_bytes(place: &str, StoredText { version, toml }: &StoredText, now: SystemTime) -> Vec<u8> {
    let confirmed = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let StoredVersion { number, digest, published_micros, .. } = version;
    let head = format!(
        "{TITLE}\nplace {place}\nversion {number}\nsha1 {digest}\npublished {published_micros}\nconfirmed {confirmed}\n"
    );
    let check = checksum(&head, toml);
    [head.as_bytes(), format!("check {check}\n\n").as_bytes(), toml].concat()
}

/// Returns the place and the text of a file. `None` for a damaged one.
fn parse(bytes: &[u8]) -> Option<(String, CachedText)> {
    let end = bytes.windows(2).position(|two| two == b"\n\n")?;
    let (head, toml) = (std::str::from_utf8(bytes.get(..=end)?).ok()?, bytes.get(end + 2..)?);
    let (head, check) = head.split_at(head.rfind("check ")?);
    if check.strip_prefix("check ")?.strip_suffix('\n')? != checksum(head, toml) {
        return None;
    }
    let mut lines = head.strip_prefix(TITLE)?.strip_prefix('\n')?.lines();
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let place = field("place")?.to_owned();
    let number = number(field("version"))?;
    let digest = field("sha1")?.to_owned();
    let published_micros = self::number(field("published"))?;
    let confirmed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self::number(field("confirmed"))?))?;
    let version = StoredVersion { number, digest, published_micros, is_restored: false };
    Some((place, CachedText { text: Arc::new(StoredText { version, toml: toml.to_vec() }), confirmed }))
}

fn number(text: Option<&str>) -> Option<u64> {
    u64::from_str(text?).ok()
}

fn checksum(head: &str, toml: &[u8]) -> String {
    let digest = Sha256::new().chain_update(head).chain_update(toml).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(all(test, not(limiter_loom)))]
mod tests {
    use limiter_testkit::Random;

    use super::*;

    fn text() -> StoredText {
        let (digest, toml) = ("da39a3".to_owned(), b"[rules.a]\n\nlimit = \"5/s\"\n".to_vec());
        let version = StoredVersion { number: 7, digest, published_micros: 1_700_000_000_000_000, is_restored: false };
        StoredText { version, toml }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn read(path: &Path) -> Result<Saved, Error> {
        SharedRulesCache::new(path, "here".to_owned()).read()
    }

    #[test]
    fn a_file_keeps_a_text_with_its_version_and_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache");
        assert!(matches!(read(&path), Ok(Saved::Nothing)));
        let cache = SharedRulesCache::new(&path, "here".to_owned());
        cache.save(&text(), at(1_000_000)).expect("writes");
        let Ok(Saved::Text(saved)) = cache.read() else { panic!("{:?}", cache.read()) };
        assert_eq!((&saved.text.version, &saved.text.toml), (&text().version, &text().toml));
        let cases = [(0, true), (86_400, true), (86_401, false), (-1_i64, false)];
        for (age, is_recent) in cases {
            let now = at(1_000_000_u64.checked_add_signed(age).expect("after the epoch"));
            assert_eq!(saved.is_recent(now), is_recent, "{age} s");
        }
        let other = SharedRulesCache::new(&path, "there".to_owned());
        let Ok(Saved::Unusable(reason)) = other.read() else { panic!("{:?}", other.read()) };
        assert_eq!(reason, "it is of other shared rules, here, and those here are there");
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 1, "no other file is left");
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("a file").permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_never_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache");
        let bytes = to_bytes("here", &text(), at(1_000_000));
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).expect("writes");
            assert!(matches!(read(&path), Ok(Saved::Unusable(_))), "{length} bytes");
        }
        let mut random = Random::new(12);
        for at in MARK.len()..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.below(8);
            fs::write(&path, &changed).expect("writes");
            assert!(matches!(read(&path), Ok(Saved::Unusable(_))), "byte {at}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_an_error_and_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rules.toml");
        fs::write(&path, "[rules.a]\n").expect("writes");
        for (path, found) in [(&*path, "a file of another kind"), (directory.path(), "a directory or a device")] {
            let error = read(path).expect_err(found);
            let expected = format!(
                "`shared_rules_cache` must be a file that only limiters write, got {found}, {}: write the path of a new file",
                path.display()
            );
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Config, expected));
        }
        assert_eq!(fs::read_to_string(&path).expect("readable"), "[rules.a]\n");
    }
}
