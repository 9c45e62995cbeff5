//! The file whose content is arriving.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use underpass_tar::{HeaderChain, Member, MemberKind, SparseExtent};

use crate::error::{Doing, Error};

/// A file whose content is arriving.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    pub(super) file: Arc<OwnedFd>,
    pub(super) member: Member,
    /// The hash over the headers, this file's included.
    pub(super) chain: HeaderChain,
    /// Its permissions as it was made.
    pub(super) made: u32,
    extents: Vec<SparseExtent>,
    /// The extent that is being written, and the bytes of it that are.
    at: usize,
    within: u64,
    /// Bytes of content in the stream that are in the file.
    pub(super) present: u64,
}

impl UnfinishedFile {
    /// Returns a file of whose content no bytes are there.
    pub(super) fn new(
        file: OwnedFd,
        mut member: Member,
        chain: HeaderChain,
        made: u32,
    ) -> UnfinishedFile {
        let extents = match &mut member.kind {
            MemberKind::SparseFile { extents, .. } => std::mem::take(extents),
            kind => vec![SparseExtent {
                offset: 0,
                len: kind.stored(),
            }],
        };
        UnfinishedFile {
            file: Arc::new(file),
            member,
            chain,
            made,
            extents,
            at: 0,
            within: 0,
            present: 0,
        }
    }

    /// The part of the file that the next bytes belong to: offset and length.
    pub(super) fn next(&self) -> (u64, u64) {
        self.extents.get(self.at).map_or((0, 0), |extent| {
            (extent.offset + self.within, extent.len - self.within)
        })
    }

    /// Notes bytes that were written.
    pub(super) fn advance(&mut self, mut bytes: u64) {
        self.present += bytes;
        while let Some(extent) = self.extents.get(self.at) {
            let taken = bytes.min(extent.len - self.within);
            self.within += taken;
            bytes -= taken;
            if self.within < extent.len {
                break;
            }
            self.at += 1;
            self.within = 0;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.at >= self.extents.len()
    }

    /// Writes as many of the bytes as belong together. Returns their number.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<usize, Error> {
        let (offset, len) = self.next();
        let taken = usize::try_from(len).map_or(bytes.len(), |len| len.min(bytes.len()));
        let written = rustix::io::pwrite(self.file.as_fd(), &bytes[..taken], offset);
        match written.doing("writing a file")? {
            0 if taken > 0 => Err(Error::NoSpace),
            written => Ok(written),
        }
    }
}

#[cfg(test)]
mod tests {
    use underpass_tar::TarTime;

    use super::*;

    #[test]
    fn content_goes_into_extents() {
        let extents = vec![
            SparseExtent { offset: 10, len: 3 },
            SparseExtent { offset: 20, len: 2 },
        ];
        let kind = MemberKind::SparseFile { size: 30, extents };
        let member = Member::new("f", kind, 0o600, TarTime::default());
        let file = tempfile::tempfile().unwrap();
        let mut file = UnfinishedFile::new(file.into(), member, HeaderChain::new(), 0o600);
        assert_eq!(file.next(), (10, 3));
        file.advance(1);
        assert_eq!((file.next(), file.is_complete()), ((11, 2), false));
        file.advance(3);
        assert_eq!((file.next(), file.present), ((21, 1), 4));
        file.advance(1);
        assert_eq!((file.next(), file.is_complete()), ((0, 0), true));
    }
}
