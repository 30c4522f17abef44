//! The command about slots, and its replies. Their formats are in the header of `lua/slots.lua`.

use std::slice;
use std::time::Duration;

use redis::Value;

use super::command::{Command, CommandBody};
use super::reply::unexpected_reply;
use super::slot_arguments::SlotArguments;
use crate::Error;
use crate::concurrency::message::{MessageState, SlotHolder, SlotMessage, SlotProcessId, SlotReply};
use crate::store::redis::naming::RedisKey;

#[cfg(all(test, feature = "test-util"))]
pub(crate) mod model;
#[cfg(all(test, feature = "test-util"))]
mod tests;

/// One call of the script.
#[derive(Clone, Debug)]
pub(crate) enum SlotOperation {
    /// Messages of one process, each about a key. All keys are in one slot.
    Send { process: SlotProcessId, messages: Vec<(RedisKey, SlotMessage)> },
    /// Reads the processes that have slots or wait for some.
    Peek(RedisKey),
    /// Forgets the processes that wait. Slots in use stay.
    Reset(RedisKey),
}

/// Bytes of a packed message.
const MESSAGE_BYTES: usize = 19;
/// Bytes of the packed reply to a message.
const REPLY_BYTES: usize = 18;
/// Bytes of a packed holder.
const HOLDER_BYTES: usize = 16;
/// The reply to a reset.
const DONE: Value = Value::Int(1);

impl SlotOperation {
    /// The command, whose notices go to the channels with this prefix.
    pub(crate) fn command(self, channel_prefix: &str) -> Command {
        let (keys, arguments) = match self {
            Self::Send { process, messages } => {
                let packed = messages.iter().flat_map(|(_, message)| encode(message)).collect();
                let channel_prefix = channel_prefix.to_owned();
                let keys = messages.into_iter().map(|(key, _)| key).collect();
                (keys, SlotArguments::Send { process, messages: packed, channel_prefix })
            }
            Self::Peek(key) => (vec![key], SlotArguments::Peek),
            Self::Reset(key) => (vec![key], SlotArguments::Reset),
        };
        Command { keys, body: CommandBody::Slots(arguments) }
    }
}

fn encode(message: &SlotMessage) -> [u8; MESSAGE_BYTES] {
    let &SlotMessage { number, run, hold, want, least, waiting, max, slot_time, asks_again } = message;
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    let fields = [run, hold, want, least, waiting, max, slot_time];
    bytes[4..].chunks_exact_mut(2).zip(fields).for_each(|(field, value)| field.copy_from_slice(&value.to_be_bytes()));
    bytes[MESSAGE_BYTES - 1] = asks_again.into();
    bytes
}

/// Decodes the reply to so many messages.
///
/// # Errors
/// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) for anything else.
pub(crate) fn decode_messages(reply: &Value, count: usize) -> Result<Vec<SlotReply>, Error> {
    let replies = packed(reply).filter(|replies| replies.len() == count);
    replies.and_then(|replies| replies.iter().map(decode_reply).collect()).ok_or_else(unexpected_reply)
}

/// Decodes the reply to a peek.
///
/// # Errors
/// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) for anything else.
pub(crate) fn decode_peek(reply: &Value) -> Result<Vec<SlotHolder>, Error> {
    packed(reply).and_then(|holders| holders.iter().map(decode_holder).collect()).ok_or_else(unexpected_reply)
}

/// Checks the reply to a reset.
///
/// # Errors
/// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) for anything else.
pub(crate) fn decode_reset(reply: &Value) -> Result<(), Error> {
    if *reply == DONE { Ok(()) } else { Err(unexpected_reply()) }
}

/// The parts of a packed reply.
fn packed<const BYTES: usize>(reply: &Value) -> Option<&[[u8; BYTES]]> {
    let Value::BulkString(bytes) = reply else { return None };
    let (parts, rest) = bytes.as_chunks();
    rest.is_empty().then_some(parts)
}

fn decode_reply(bytes: &[u8; REPLY_BYTES]) -> Option<SlotReply> {
    let mut bytes = bytes.iter();
    let state = match number::<1>(&mut bytes)? {
        0 => MessageState::Fresh,
        1 => MessageState::Stale,
        2 => MessageState::Full,
        3 => MessageState::Damaged,
        _ => return None,
    };
    let reply = SlotReply {
        state,
        granted: short(&mut bytes)?,
        allow: short(&mut bytes)?,
        share: short(&mut bytes)?,
        others_wait: match number::<1>(&mut bytes)? {
            0 => false,
            1 => true,
            _ => return None,
        },
        in_use: number::<4>(&mut bytes)?,
        others_waiting: short(&mut bytes)?,
        first_end: Some(number::<4>(&mut bytes)?).filter(|millis| *millis != u32::MAX).map(millis),
    };
    let is_sane = reply.allow <= reply.granted && u32::from(reply.granted) <= reply.in_use;
    is_sane.then_some(reply)
}

fn decode_holder(bytes: &[u8; HOLDER_BYTES]) -> Option<SlotHolder> {
    let (process, rest) = bytes.split_first_chunk()?;
    let mut rest = rest.iter();
    Some(SlotHolder {
        process: *process,
        slots: short(&mut rest)?,
        waiting: short(&mut rest)?,
        end: millis(number::<4>(&mut rest)?),
    })
}

/// Reads a big-endian number of so many bytes.
fn number<const BYTES: usize>(bytes: &mut slice::Iter<'_, u8>) -> Option<u32> {
    (0..BYTES).try_fold(0, |number, _| Some(number << 8 | u32::from(*bytes.next()?)))
}

fn short(bytes: &mut slice::Iter<'_, u8>) -> Option<u16> {
    number::<2>(bytes).and_then(|number| number.try_into().ok())
}

fn millis(millis: u32) -> Duration {
    Duration::from_millis(millis.into())
}
