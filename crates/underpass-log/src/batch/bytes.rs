//! The bytes of a batch, kept in the buffer of the request.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::batch::header::BatchHeader;

/// One whole batch within shared bytes, usually those of a request, which stay in memory until the
/// batch is written.
#[derive(Clone)]
pub struct BatchBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    /// The header to write instead of the one in the bytes.
    header: Option<BatchHeader>,
}

impl BatchBytes {
    /// Takes a range of the bytes of `owner`. Panics if the range is out of bounds.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> BatchBytes {
        assert!(
            range.end <= (*owner).as_ref().len(),
            "{range:?} is not there"
        );
        BatchBytes {
            owner,
            range,
            header: None,
        }
    }

    /// Sets the header to write, as returned by [`check`](crate::batch::check) for this batch.
    pub fn with_header(self, header: BatchHeader) -> BatchBytes {
        BatchBytes {
            header: Some(header),
            ..self
        }
    }

    /// Returns the header to write; `None` if the bytes are not a batch.
    pub(crate) fn header(&self) -> Option<BatchHeader> {
        self.header.or_else(|| BatchHeader::parse(self))
    }
}

impl From<Vec<u8>> for BatchBytes {
    fn from(batch: Vec<u8>) -> BatchBytes {
        let range = 0..batch.len();
        BatchBytes::new(Arc::new(batch), range)
    }
}

impl Deref for BatchBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for BatchBytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "BatchBytes({:?})", self.range)
    }
}
