//! Receiving a frame, which has a known length, into a buffer of its own.

use std::future::poll_fn;

use crate::connection::input::FrameBuffer;
use crate::connection::wait::{PeerActivity, WhileDraining};
use crate::connection::{Connection, read_error};
use crate::error::ConnectionError;

impl Connection {
    /// Receives the rest of a frame: what is in the input first, the others directly. The deadline
    /// is the one that [`start_deadline`](Connection::start_deadline) has set. Cancel safe: `frame`
    /// keeps what has arrived, and another call goes on.
    ///
    /// # Errors
    /// `TimedOut`, `Stopped`, `PeerGone` (also where the peer ends its side before the frame is
    /// complete), `Read`.
    pub async fn receive_frame(
        &mut self,
        frame: &mut FrameBuffer,
        while_draining: WhileDraining,
    ) -> Result<(), ConnectionError> {
        let taken = frame.take(self.state.input.bytes());
        self.state.input.consume(taken);
        while frame.missing() > 0 {
            let transport = &self.state.transport;
            let read = poll_fn(|task| transport.poll_read_frame(task, frame));
            let connections = &self.state.worker.connections;
            match self
                .state
                .wait
                .until(connections, while_draining, read)
                .await?
            {
                Ok(0) => return Err(ConnectionError::PeerGone),
                Ok(_) => self.state.wait.activity = PeerActivity::Received,
                Err(error) => return Err(read_error(error)),
            }
            frame.leave_rest(&mut self.state.input);
        }
        Ok(())
    }
}
