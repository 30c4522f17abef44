//! The `redis-server` binary that the tests start.

use std::env;
use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

const BINARY_VARIABLE: &str = "RATE_LIMITED_REDIS_SERVER";

/// Returns the program's name or path.
pub(super) fn program() -> OsString {
    env::var_os(BINARY_VARIABLE).unwrap_or_else(|| "redis-server".into())
}

/// Returns the major and minor version, which is read once.
///
/// # Panics
///
/// The program cannot be run.
pub(super) fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let program = program();
        let output = match Command::new(&program).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => panic!(
                "cannot run {program:?} ({error}): install it (Debian, Ubuntu: `apt-get install \
                 redis-server`, Fedora, Alpine: the package `redis`, macOS: `brew install redis`), \
                 or name the binary in {BINARY_VARIABLE}"
            ),
        };
        parse_version(&output).unwrap_or_else(|| panic!("{program:?} does not print its version, but: {output:?}"))
    })
}

/// Parses the version line. Redis prints `Redis server v=7.0.15 sha=…`, Valkey prints `Valkey server v=9.1.0 …`.
fn parse_version(output: &str) -> Option<(u32, u32)> {
    let version = output.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn parses_the_version_of_redis_and_valkey() {
        let table = [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some((7, 0))),
            ("Redis server v=6.2.14 sha=00000000:0", Some((6, 2))),
            ("Valkey server v=9.1.0 sha=00000000:0", Some((9, 1))),
            ("usage: something else", None),
            ("v=next", None),
        ];
        for (output, version) in table {
            assert_eq!(parse_version(output), version, "{output}");
        }
    }
}
