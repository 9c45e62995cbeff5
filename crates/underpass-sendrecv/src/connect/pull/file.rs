//! Fetches a file.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use underpass::Account;
use underpass_http::fields::content_range::ContentRange;
use underpass_receive::{Error as ReceiveFault, PartialFile, SyncPolicy};

use super::{ItemFetch, get};
use crate::body::Body;
use crate::connect::peer::{Ask, Peer};
use crate::error::Error;
use crate::offer::window;
use crate::profile::{self, SourceStamp};
use crate::progress::TransferEvent;
use crate::target::{self, UNFINISHED_LIFETIME};

/// Bytes between two looks at the progress.
pub(super) const SLICE_BYTES: u64 = 4 << 20;

impl ItemFetch<'_> {
    /// Fetches a file, from where it was left.
    pub(super) async fn pull_file(&self, peer: &mut Peer) -> Result<(), Error> {
        let present = target::unfinished(self.area, &self.path);
        let (mut present, source) = match present.map_err(|error| self.failed(error))? {
            Some((partial, source)) => (Some(partial), source),
            None => (None, None),
        };
        let ask = self.ask_for_rest(present.as_ref(), source)?;
        let mut reply = peer.fetch(&ask).await?;
        let range = reply.field("Content-Range").and_then(ContentRange::parse);
        let now = reply.field(profile::SOURCE).and_then(SourceStamp::parse);
        let (first, now) = match (reply.status, range, now) {
            (200, _, Some(now)) => (0, now),
            (206, Some(ContentRange::Part { range, .. }), Some(now)) => (range.first, now),
            (409, _, _) if present.is_some() => {
                self.discard(present.take())?;
                return Err(self.changed());
            }
            _ => return Err(peer.refusal(reply).await),
        };
        let mut partial = match present {
            Some(partial) if first > 0 => partial,
            earlier => {
                self.discard(earlier)?;
                self.create(&now)?
            }
        };
        if first > 0 {
            self.progress.record(TransferEvent::Continued {
                name: self.item.name.clone(),
                bytes: first,
            });
            self.progress.add_bytes(first);
        }
        let extent = (first, now.size);
        if let Err(error) = self.receive(peer, &mut reply.body, &partial, extent).await {
            let _ = partial.keep(UNFINISHED_LIFETIME, SyncPolicy::End);
            return Err(error);
        }
        self.commit(partial, now.size)
    }

    /// Returns the request for what is missing, with the hash of the end of what is there.
    fn ask_for_rest(
        &self,
        present: Option<&PartialFile>,
        source: Option<SourceStamp>,
    ) -> Result<Ask<'_>, Error> {
        let failed = |error| self.failed(error);
        let mut ask = get(Some(&self.item.name), "");
        let (Some(partial), Some(source)) = (present, source) else {
            return Ok(ask);
        };
        // A range at the end of the file cannot be satisfied: the last byte is fetched again.
        let size = partial.size().map_err(failed)?;
        let from = size.min(source.size.saturating_sub(1));
        if from == 0 {
            return Ok(ask);
        }
        partial.truncate(from).map_err(failed)?;
        let file = partial.file().try_clone().map(File::from);
        let known = file.and_then(|file| window(&file, from));
        let known = known.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            failed(ReceiveFault::of("reading what was received", errno))
        })?;
        ask.fields.push(("Range", format!("bytes={from}-")));
        ask.fields.push(("If-Range", format!("\"{source}\"")));
        ask.fields.push((profile::WINDOW, known.to_string()));
        Ok(ask)
    }

    fn discard(&self, partial: Option<PartialFile>) -> Result<(), Error> {
        let discarded = partial.map(PartialFile::discard).transpose();
        discarded.map(drop).map_err(|error| self.failed(error))
    }

    fn create(&self, now: &SourceStamp) -> Result<PartialFile, Error> {
        let failed = |error| self.failed(error);
        let checked = self.area.check_space(now.size, self.options.keep_free);
        checked.map_err(failed)?;
        target::create(self.area, &self.path, (now.size, Some(*now))).map_err(failed)
    }

    /// Moves a body into a partial file.
    async fn receive(
        &self,
        peer: &mut Peer,
        body: &mut Body,
        partial: &PartialFile,
        (first, size): (u64, u64),
    ) -> Result<(), Error> {
        let mut account = Account::default();
        let base = self.progress.bytes.load(Relaxed);
        let mut at = first;
        let result = loop {
            // In slices, so that the progress is seen.
            let place = (at, SLICE_BYTES.min(size - at));
            let connection = &mut peer.connection;
            let moved = body.move_to_file(connection, &**partial.file(), place, &mut account);
            match moved.await {
                Ok(0) if at < size => {
                    break Err(Error::Lost {
                        why: "the body has ended early".to_owned(),
                    });
                }
                Ok(moved) => at += moved,
                Err(error) => break Err(error.into()),
            }
            self.progress.bytes.store(base + at - first, Relaxed);
            if at == size {
                break Ok(());
            }
        };
        self.progress.moved(&account);
        result
    }

    /// Gives a complete file its name.
    pub(super) fn commit(&self, partial: PartialFile, bytes: u64) -> Result<(), Error> {
        let overwrite = self.options.overwrite();
        let committed = partial.commit(&self.path, overwrite, SyncPolicy::End, None);
        committed.map_err(|error| self.failed(error))?;
        self.progress.record(TransferEvent::Complete {
            name: self.item.name.clone(),
            bytes,
        });
        Ok(())
    }
}
