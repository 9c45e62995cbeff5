//! The bytes of a batch, where a request has left them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// One whole batch within bytes that are shared: mostly those of the request that has brought it,
/// which stay in memory until the batch is written.
#[derive(Clone)]
pub struct BatchBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl BatchBytes {
    /// A part of what `owner` has. Panics if it has no such part.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> BatchBytes {
        assert!(
            range.end <= (*owner).as_ref().len(),
            "{range:?} is not there"
        );
        BatchBytes { owner, range }
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
