//! Fetches a stream of unknown length, which cannot be continued.

use underpass::Account;

use super::file::SLICE_BYTES;
use super::{ItemFetch, get};
use crate::connect::peer::Peer;
use crate::error::Error;

impl ItemFetch<'_> {
    /// Fetches a stream from its start.
    pub(super) async fn pull_stream(&self, peer: &mut Peer) -> Result<(), Error> {
        let mut reply = peer.fetch(&get(Some(&self.item.name), "")).await?;
        if reply.status != 200 {
            return Err(peer.refusal(reply).await);
        }
        let partial = self.area.begin().map_err(|error| self.failed(error))?;
        let mut account = Account::default();
        let mut at = 0;
        loop {
            let checked = self.area.check_space(SLICE_BYTES, self.options.keep_free);
            checked.map_err(|error| self.failed(error))?;
            let (body, connection) = (&mut reply.body, &mut peer.connection);
            let place = (at, SLICE_BYTES);
            let moved = body.move_to_file(connection, &**partial.file(), place, &mut account);
            match moved.await? {
                0 => break,
                moved => {
                    at += moved;
                    self.progress.add_bytes(moved);
                }
            }
        }
        self.progress.moved(&account);
        self.commit(partial, at)
    }
}
