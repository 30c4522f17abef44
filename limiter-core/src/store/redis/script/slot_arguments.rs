//! The arguments of a command about slots.

use redis::Cmd;

use crate::concurrency::message::SlotProcessId;

/// The arguments of a command about slots.
#[derive(Debug)]
pub(crate) enum SlotArguments {
    Send {
        process: SlotProcessId,
        /// The packed messages.
        messages: Vec<u8>,
        /// Notices go to the channels with this prefix.
        channel_prefix: String,
    },
    Peek,
    Reset,
}

impl SlotArguments {
    pub(crate) fn push_to(&self, command: &mut Cmd) {
        match self {
            Self::Send { process, messages, channel_prefix } => {
                command.arg("send").arg(process).arg(&messages[..]).arg(channel_prefix);
            }
            Self::Peek => {
                command.arg("peek");
            }
            Self::Reset => {
                command.arg("reset");
            }
        }
    }
}
