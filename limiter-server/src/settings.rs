//! The settings of the program, resolved once. Every mistake is found before anything starts.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use limiter_server::{ListenAddress, Server};
use limiter_syntax::parse_window;
use rate_limited::{Builder, Limiter};

use crate::arguments::Arguments;
use crate::rules_file::mistakes_of_rules;

/// The address of HTTP without an option.
const DEFAULT_HTTP: &str = "127.0.0.1:8080";
/// The address of RESP without an option.
const DEFAULT_RESP: &str = "127.0.0.1:6390";
/// The address of gRPC with a configuration of Envoy.
const DEFAULT_GRPC: &str = "127.0.0.1:8081";
/// The longest wait that `--max-wait` may permit.
const MAX_MAX_WAIT: Duration = Duration::from_secs(60);
/// The deadlines that a limiter may have.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// The largest file with a token or a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 4 << 10;
/// The most connections that may be set.
const MAX_CONNECTIONS: u32 = 1_000_000;

/// A server with its options, and its address.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) server: Server,
    pub(crate) limiter: Limiter,
    pub(crate) http: ListenAddress,
    /// `None` if it is off.
    pub(crate) resp: Option<ListenAddress>,
    /// `None` if it is off.
    pub(crate) grpc: Option<ListenAddress>,
    /// The limiter follows the rules in the store.
    pub(crate) follows_shared_rules: bool,
    /// No store is set: this process alone counts.
    pub(crate) is_alone: bool,
}

/// The mistakes that were found so far.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    /// Adds the mistakes of the file of rules that are not reported yet.
    fn add_those_of_rules(&mut self, arguments: &Arguments) {
        let Some(file) = &arguments.rules else { return };
        for mistake in mistakes_of_rules(&fs::read_to_string(file).unwrap_or_default()) {
            if !self.0.iter().any(|known| known.ends_with(&mistake)) {
                self.0.push(format!("{}: {mistake}", file.display()));
            }
        }
    }

    /// Returns the value, or adds the mistake.
    fn take<T>(&mut self, result: Result<T, impl ToString>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake.to_string())).ok()
    }
}

impl Settings {
    /// Reads the options and the files that they name.
    ///
    /// # Errors
    /// All mistakes, each a sentence.
    pub(crate) fn resolve(arguments: &Arguments) -> Result<Self, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let environment = std::env::var("RATE_LIMITED_URL").ok();
        let url = arguments.url.clone().or(environment).filter(|url| !url.is_empty());
        let builder = builder(arguments, url.as_deref(), &mut mistakes);
        let limiter = mistakes.take(builder.build());
        if limiter.is_none() {
            mistakes.add_those_of_rules(arguments);
        }
        let http = arguments.http.as_deref().unwrap_or(DEFAULT_HTTP);
        let http = mistakes.take(http.parse::<ListenAddress>().map_err(|error| format!("`http`: {error}")));
        let resp = arguments.resp.as_deref().unwrap_or(DEFAULT_RESP);
        let resp = (resp != "off").then(|| resp.parse::<ListenAddress>().map_err(|error| format!("`resp`: {error}")));
        let resp = resp.and_then(|resp| mistakes.take(resp));
        let grpc = mistakes.take(grpc(arguments)).flatten();
        // Without a limiter the other options are checked all the same.
        let is_limiter_valid = limiter.is_some();
        let limiter = limiter.unwrap_or_else(Limiter::memory);
        let server = server(limiter.clone(), arguments, &mut mistakes);
        if let Some(http) = &http
            && is_limiter_valid
        {
            let found = server.mistakes(http);
            // Its rules are not read yet.
            let is_known = |mistake: &String| !arguments.shared_rules || !mistake.starts_with("`header`");
            mistakes.0.extend(found.iter().map(ToString::to_string).filter(is_known));
        }
        for (option, address) in [("resp", &resp), ("grpc", &grpc)] {
            if let Some(address) = address {
                mistakes.take(server.check_address(option, address));
            }
        }
        if arguments.check {
            let addresses = [("http", &http), ("resp", &resp), ("grpc", &grpc)];
            let addresses = addresses.into_iter().filter_map(|(option, address)| Some((option, address.as_ref()?)));
            mistakes.0.extend(ListenAddress::mistakes(addresses).iter().map(ToString::to_string));
        }
        match (http, mistakes.0) {
            (Some(http), mistakes) if mistakes.is_empty() => {
                let (follows_shared_rules, is_alone) = (arguments.shared_rules, url.is_none());
                Ok(Self { server, limiter, http, resp, grpc, follows_shared_rules, is_alone })
            }
            (_, mistakes) => Err(mistakes),
        }
    }
}

/// Creates the builder of the limiter.
fn builder(arguments: &Arguments, url: Option<&str>, mistakes: &mut Mistakes) -> Builder {
    let secret = match &arguments.receipt_secret_file {
        Some(file) => mistakes.take(read_secret("receipt-secret-file", file)),
        None => None,
    };
    let mut builder = Limiter::builder()
        .url(url.unwrap_or("memory:"))
        .report_limits(true)
        .receipt_secret(secret.unwrap_or_else(random_secret));
    if let Some(file) = &arguments.rules {
        builder = builder.rules_file(file);
    }
    if arguments.shared_rules {
        builder = builder.shared_rules();
    }
    if let Some(file) = &arguments.shared_rules_cache {
        if arguments.shared_rules {
            builder = builder.shared_rules_cache(file);
        } else {
            mistakes.0.push("`shared-rules-cache` must go with `shared-rules`, got it alone: set both".to_owned());
        }
    }
    if let Some(deadline) = &arguments.deadline
        && let Some(time) = mistakes.take(duration("deadline", deadline))
    {
        if DEADLINES.contains(&time) {
            builder = builder.deadline(time);
        } else {
            mistakes.0.push(format!("`deadline` must be 1ms to 60s, got `{deadline}`: write one such as `100ms`"));
        }
    }
    arguments.prefix.iter().fold(builder, Builder::prefix)
}

/// Creates the server with its options.
fn server(limiter: Limiter, arguments: &Arguments, mistakes: &mut Mistakes) -> Server {
    let mut server = Server::new(limiter);
    if let Some(file) = &arguments.token_file
        && let Some(token) = mistakes.take(read_secret("token-file", file))
    {
        let shown = |error| format!("{}: {error}", file.display());
        server = mistakes.take(server.clone().token(token).map_err(shown)).unwrap_or(server);
    } else if arguments.token_file.is_some() {
        // The mistake is the file's. One of the address would be in the way.
        server = server.insecure();
    }
    if !arguments.envoy_config.is_empty() {
        match server.clone().envoy_config(&arguments.envoy_config) {
            Ok(with_config) => server = with_config,
            Err(found) => mistakes.0.extend(found.iter().map(ToString::to_string)),
        }
    }
    for header in &arguments.header {
        server = mistakes.take(server.clone().header(header)).unwrap_or(server);
    }
    if arguments.allow_limits {
        server = server.allow_limits();
    }
    if arguments.insecure {
        server = server.insecure();
    }
    if let Some(text) = &arguments.max_wait
        && let Some(max_wait) = mistakes.take(duration("max-wait", text))
    {
        if max_wait > MAX_MAX_WAIT {
            mistakes.0.push(format!("`max-wait` must be at most 60s, got `{text}`: write a shorter one"));
        }
        server = server.max_wait(max_wait);
    }
    if let Some(text) = &arguments.max_connections {
        let number = text.parse().ok().filter(|number| (1..=MAX_CONNECTIONS).contains(number));
        let number = number.ok_or_else(|| {
            format!(
                "`max-connections` must be a number of 1 to {MAX_CONNECTIONS}, got `{text}`: write one such as `10000`"
            )
        });
        if let Some(number) = mistakes.take(number) {
            server = server.max_connections(number);
        }
    }
    server
}

/// The address of gRPC. `None` if it is off.
fn grpc(arguments: &Arguments) -> Result<Option<ListenAddress>, String> {
    let text = match &arguments.grpc {
        Some(text) => text,
        None if arguments.envoy_config.is_empty() => return Ok(None),
        None => DEFAULT_GRPC,
    };
    if text == "off" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| format!("`grpc`: {error}, or `off`"))
}

fn duration(option: &str, text: &str) -> Result<Duration, String> {
    if ["0", "0s", "0ms"].contains(&text) {
        return Ok(Duration::ZERO);
    }
    let invalid =
        |_| format!("`{option}` must be a number and a unit, got `{text}`: write one such as `500ms` or `1s`");
    parse_window(text).map(Duration::from_millis).map_err(invalid)
}

/// Reads a file with a token or a secret, without the newline at its end.
fn read_secret(option: &str, path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let unreadable =
        |error| format!("`{option}` must be a file that can be read, got {shown}: {error}: write its path");
    let found = fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(format!("`{option}` must be a file, got {shown}, which is none: write its path"));
    }
    check_mode(option, path, &found)?;
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_SECRET_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_SECRET_BYTES {
        return Err(format!(
            "`{option}` must have at most {MAX_SECRET_BYTES} bytes, got more in {shown}: write the secret alone"
        ));
    }
    while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        bytes.pop();
    }
    Ok(bytes)
}

/// Checks that others than the owner and the group can neither read nor write a file.
#[cfg(unix)]
fn check_mode(option: &str, path: &Path, found: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;

    let mode = found.permissions().mode() & 0o777;
    if mode & 0o007 == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(format!(
        "`{option}` must be a file that others cannot read, got {shown} with the mode {mode:04o}: run `chmod 600 {shown}`"
    ))
}

#[cfg(not(unix))]
fn check_mode(_option: &str, _path: &Path, _found: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

/// Returns a secret of this process, by the system's random source.
fn random_secret() -> Vec<u8> {
    (0_u8..4).flat_map(|_| RandomState::new().hash_one(0_u8).to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn mistakes(arguments: &[&str]) -> Vec<String> {
        let arguments = ["limiter-server"].iter().chain(arguments);
        match Settings::resolve(&Arguments::parse_from(arguments)) {
            Ok(_) => Vec::new(),
            Err(mistakes) => mistakes,
        }
    }

    #[tokio::test]
    async fn every_mistake_is_reported() {
        let found = mistakes(&[
            "--http=localhost:80",
            "--resp=localhost:80",
            "--token-file=/nonexistent",
            "--header=user",
            "--max-wait=5",
            "--deadline=soon",
            "--max-connections=0",
            "--shared-rules-cache=/nonexistent",
            "--rules=/nonexistent",
        ]);
        let expected = [
            "`shared-rules-cache`",
            "`deadline`",
            "/nonexistent",
            "`http`",
            "`resp`",
            "`token-file`",
            "`header`",
            "`max-wait`",
            "`max-connections`",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (mistake, start) in found.iter().zip(expected) {
            assert!(mistake.contains(start), "{mistake}");
        }
        assert!(mistakes(&[]).is_empty());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_token_file_that_others_may_read_is_a_mistake() {
        use std::os::unix::fs::PermissionsExt;

        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "0123456789abcdef\n").expect("written");
        let option = format!("--token-file={}", file.path().display());
        let with_mode = |mode| {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("the owner's");
            mistakes(&[&option, "--http=0.0.0.0:0"])
        };
        assert_eq!(with_mode(0o600), Vec::<String>::new());
        assert_eq!(with_mode(0o640), Vec::<String>::new());
        for mode in [0o644, 0o604, 0o602] {
            let found = with_mode(mode);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("others cannot read") && found[0].contains("chmod 600"), "{found:?}");
        }
        fs::write(file.path(), "short").expect("written");
        assert!(with_mode(0o600)[0].contains("at least 16 bytes, got 5"));
    }

    #[tokio::test]
    async fn headers_are_compared_with_the_rules_of_the_file() {
        let rules = tempfile::NamedTempFile::new().expect("a file");
        fs::write(rules.path(), "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"5/10s\"\n").expect("written");
        let option = format!("--rules={}", rules.path().display());
        assert_eq!(mistakes(&[&option, "--header=search/user_id=x-user-id"]), Vec::<String>::new());
        let found = mistakes(&[&option, "--header=serch/user_id=x-user-id,search/user=x-user-id"]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().any(|mistake| mistake.ends_with("got `serch`: write `search`")), "{found:?}");
        assert!(found.iter().any(|mistake| mistake.contains("whose parts are `user_id`")), "{found:?}");
        fs::write(rules.path(), "[rules.search]\nlimt = \"5/10s\"\n[rules.b]\nlimit = \"5\"\n").expect("written");
        let found = mistakes(&[&option]);
        assert!(found.len() == 2 && found[0].contains("line 2, column 1"), "{found:?}");
        assert!(found[1].contains("line 4, column"), "{found:?}");
    }

    #[tokio::test]
    async fn an_address_of_other_machines_needs_a_token_or_a_decision() {
        assert_eq!(mistakes(&["--http=0.0.0.0:0"]).len(), 1);
        assert!(mistakes(&["--http=0.0.0.0:0", "--insecure"]).is_empty());
        assert!(mistakes(&["--http=unix:/run/limiter.sock", "--resp=off"]).is_empty());
        let found = mistakes(&["--resp=0.0.0.0:0"]);
        assert!(found.len() == 1 && found[0].starts_with("`resp` must be an address of this machine"), "{found:?}");
        assert!(mistakes(&["--resp=0.0.0.0:0", "--insecure"]).is_empty());
    }
}
