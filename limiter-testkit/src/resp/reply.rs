//! Replies, and how a test takes one apart.

/// What a server answers. The helpers panic on another kind of reply and show it, which is what a test wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(String),
    /// A refusal, with its code in front.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// A status, or a string of bytes that is UTF-8.
    ///
    /// # Panics
    ///
    /// On any other reply.
    #[track_caller]
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Status(text) => text,
            Self::Bulk(bytes) => String::from_utf8(bytes).expect("the reply is not UTF-8: read it with `bytes`"),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// A string of bytes.
    ///
    /// # Panics
    ///
    /// On any other reply.
    #[track_caller]
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("not a string: {other:?}"),
        }
    }

    /// An integer.
    ///
    /// # Panics
    ///
    /// On any other reply.
    #[track_caller]
    #[must_use]
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Several replies.
    ///
    /// # Panics
    ///
    /// On any other reply.
    #[track_caller]
    #[must_use]
    pub fn array(self) -> Vec<Reply> {
        match self {
            Self::Array(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The message of a refusal.
    ///
    /// # Panics
    ///
    /// On any other reply.
    #[track_caller]
    #[must_use]
    pub fn error(self) -> String {
        match self {
            Self::Error(message) => message,
            other => panic!("not an error: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_it_holds() {
        assert_eq!(Reply::Status("OK".into()).text(), "OK");
        assert_eq!(Reply::Bulk(b"a".to_vec()).text(), "a");
        assert_eq!(Reply::Bulk(vec![255]).bytes(), [255]);
        assert_eq!(Reply::Integer(3).integer(), 3);
        assert_eq!(Reply::Array(vec![Reply::Nil]).array(), [Reply::Nil]);
        assert_eq!(Reply::Error("ERR".into()).error(), "ERR");
    }

    #[test]
    #[should_panic(expected = "not an integer: Error(\"ERR no\")")]
    fn shows_what_it_is_instead() {
        let _ = Reply::Error("ERR no".into()).integer();
    }
}
