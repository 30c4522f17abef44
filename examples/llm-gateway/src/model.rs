//! A language model that needs no machine: it counts.

use std::time::Duration;

/// The time that the model takes for a token.
const TIME_OF_A_TOKEN: Duration = Duration::from_millis(1);

/// An answer that is written word by word. Each word is a token.
pub(crate) struct Answer {
    next: u32,
    last: u32,
}

impl Answer {
    /// Begins the answer to a prompt: it counts to the number in the prompt, and to no more than `max_tokens`.
    pub(crate) fn begin(prompt: &str, max_tokens: u32) -> Self {
        let number = prompt.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(12);
        Self { next: 1, last: max_tokens.min(number) }
    }

    /// Writes the next token. `None` at the end of the answer.
    pub(crate) async fn next_token(&mut self) -> Option<String> {
        if self.next > self.last {
            return None;
        }
        tokio::time::sleep(TIME_OF_A_TOKEN).await;
        let token = format!("{} ", self.next);
        self.next += 1;
        Some(token)
    }
}

/// The tokens of a prompt.
pub(crate) fn tokens(prompt: &str) -> u32 {
    u32::try_from(prompt.split_whitespace().count()).unwrap_or(u32::MAX)
}
