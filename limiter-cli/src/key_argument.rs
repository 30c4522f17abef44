//! Keys on the command line.

use rate_limited::Key;

use crate::arguments::KeyArguments;
use crate::failure::Failure;

impl KeyArguments {
    /// Returns the key: the encoded text, then the values.
    pub(crate) fn read(&self) -> Result<Key, Failure> {
        let Self { key, part } = self;
        let encoded = Key::from_encoded(key).map_err(|_| self.wrong_key())?;
        Ok(part.iter().fold(encoded, Key::part))
    }

    fn wrong_key(&self) -> Failure {
        let remedy = match &*self.key {
            "" => "write `+` for the key of an empty text".to_owned(),
            key => format!("write `{}` for this text, and values with `--part`", Key::new(key).encoded()),
        };
        Failure::usage(format!("`KEY` must be encoded as in Redis, such as `user:@42`, got another text: {remedy}"))
    }
}
