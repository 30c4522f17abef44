//! The first commands of a connection: protocol, user, database, and the library's name.

use redis::{Cmd, ErrorKind as RedisKind, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value, cmd};

use crate::store::redis::pipelined::PipelinedConnection;

/// The library's name and version in CLIENT LIST, unless the settings have others.
const DEFAULT_LIB: (&str, &str) = ("rate-limited", env!("CARGO_PKG_VERSION"));

/// Sends the commands that the client sends on a new connection with RESP3, and checks the replies as the client does.
pub(super) async fn run(connection: &PipelinedConnection, settings: &RedisConnectionInfo) -> RedisResult<()> {
    let mut replies = connection.send_all(&commands(settings)).await?.into_iter();
    if let Some(Value::ServerError(error)) = replies.next() {
        return Err(hello_error(error.into()));
    }
    match replies.next() {
        Some(Value::ServerError(error)) if settings.db() != 0 => Err(select_error(error.details())),
        // The replies to CLIENT SETINFO do not matter: servers before Redis 7.2 do not have it.
        _ => Ok(()),
    }
}

fn commands(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut hello = cmd("HELLO");
    hello.arg(3);
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    let mut commands = vec![hello];
    if settings.db() != 0 {
        commands.push(cmd("SELECT").arg(settings.db()).clone());
    }
    if !settings.skip_set_lib_name() {
        let (name, version) = DEFAULT_LIB;
        let fields =
            [("LIB-NAME", settings.lib_name().unwrap_or(name)), ("LIB-VER", settings.lib_ver().unwrap_or(version))];
        commands.extend(fields.map(|(field, value)| cmd("CLIENT").arg("SETINFO").arg(field).arg(value).clone()));
    }
    commands
}

fn hello_error(error: RedisError) -> RedisError {
    if error.detail().is_some_and(|detail| detail.starts_with("unknown command `HELLO`")) {
        return (RedisKind::RESP3NotSupported, "the server does not have HELLO").into();
    }
    error
}

fn select_error(detail: Option<&str>) -> RedisError {
    let (kind, problem) = (ServerErrorKind::ResponseError.into(), "the server refused the database");
    match detail {
        Some(detail) => (kind, problem, detail.to_owned()).into(),
        None => (kind, problem).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(settings: &RedisConnectionInfo) -> String {
        let texts = commands(settings).into_iter().map(|command| {
            let arguments = command.args_iter().map(|argument| match argument {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            });
            arguments.collect::<Vec<_>>().join(" ")
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn sends_what_the_settings_have() {
        let settings = RedisConnectionInfo::default;
        let names = settings().set_lib_name("name", "1.2");
        assert_eq!(packed(&names), "HELLO 3; CLIENT SETINFO LIB-NAME name; CLIENT SETINFO LIB-VER 1.2");
        let short = settings().set_skip_set_lib_name();
        assert_eq!(packed(&short.clone().set_password("p")), "HELLO 3 AUTH default p");
        let all = short.set_username("u").set_password("p").set_db(2);
        assert_eq!(packed(&all), "HELLO 3 AUTH u p; SELECT 2");
    }
}
