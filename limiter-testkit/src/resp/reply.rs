//! Replies of a server, and getters for tests.

/// A reply of a server. Its getters panic on another kind of reply and show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(String),
    /// An error, starting with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// No value.
    Nil,
    /// An array of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns the text of a status, or of a bulk string that is UTF-8.
    ///
    /// # Panics
    ///
    /// The reply is of another kind.
    #[track_caller]
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Status(text) => text,
            Self::Bulk(bytes) => String::from_utf8(bytes).expect("the reply is not UTF-8: read it with `bytes`"),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Returns the bytes of a bulk string.
    ///
    /// # Panics
    ///
    /// The reply is of another kind.
    #[track_caller]
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("not a string: {other:?}"),
        }
    }

    /// Returns an integer.
    ///
    /// # Panics
    ///
    /// The reply is of another kind.
    #[track_caller]
    #[must_use]
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Returns the items of an array.
    ///
    /// # Panics
    ///
    /// The reply is of another kind.
    #[track_caller]
    #[must_use]
    pub fn array(self) -> Vec<Reply> {
        match self {
            Self::Array(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// Returns the message of an error.
    ///
    /// # Panics
    ///
    /// The reply is of another kind.
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
    fn each_getter_returns_its_kind() {
        assert_eq!(Reply::Status("OK".into()).text(), "OK");
        assert_eq!(Reply::Bulk(b"a".to_vec()).text(), "a");
        assert_eq!(Reply::Bulk(vec![255]).bytes(), [255]);
        assert_eq!(Reply::Integer(3).integer(), 3);
        assert_eq!(Reply::Array(vec![Reply::Nil]).array(), [Reply::Nil]);
        assert_eq!(Reply::Error("ERR".into()).error(), "ERR");
    }

    #[test]
    #[should_panic(expected = "not an integer: Error(\"ERR no\")")]
    fn a_getter_of_another_kind_panics_with_the_reply() {
        let _ = Reply::Error("ERR no".into()).integer();
    }
}
