//! Commands that are not written yet.

use std::io;

use super::transport::TransportWriter;

/// The memory that is kept for later commands.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Packed commands, of which the socket has taken a part.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    /// The buffer that further commands are added to.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Replaces the output, which is empty, by bytes of which the socket has taken a part.
    pub(super) fn resume(&mut self, bytes: Vec<u8>, written: usize) {
        (self.bytes, self.written) = (bytes, written);
        if self.unwritten() == 0 {
            self.clear();
        }
    }

    pub(super) fn unwritten(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes as much as the socket takes. Returns true if it has taken all.
    ///
    /// # Errors
    /// The socket is closed. The rest is discarded.
    pub(super) fn write_to(&mut self, writer: &TransportWriter) -> io::Result<bool> {
        while self.unwritten() > 0 {
            match writer.try_write(&self.bytes[self.written..]) {
                Ok(0) => return self.fail(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.drop_written();
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(error),
            }
        }
        self.clear();
        writer.try_flush()
    }

    /// Drops what is written, once that is more than the rest. So a socket that is never quick enough for all commands
    /// does not make the buffer grow, and each byte is moved once on average.
    fn drop_written(&mut self) {
        if self.written > self.unwritten() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    /// The bytes in memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn fail(&mut self, error: io::Error) -> io::Result<bool> {
        self.clear();
        Err(error)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_KEPT_BYTES);
        self.written = 0;
    }
}
