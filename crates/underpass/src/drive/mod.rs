//! The drivers: the only loops that make system calls.
//!
//! [`blocking`] waits with poll(2) on the calling thread, `tokio` (feature `tokio`) for readiness
//! on an event loop. Both hand the same operations to [`perform()`], the one place where an
//! [`Op`](crate::Op) becomes a call.
//!
//! A driver of another crate does the same: it takes the next operation of a
//! [`Transfer`](crate::Transfer) or an [`Outbox`](crate::Outbox), [performs](perform()) it, records
//! the result, and waits in its own way.
//!
//! ```
//! use underpass::drive::{SourceAndSink, RelayBuffers, perform};
//! use underpass::{Account, Kernel, Policy, Sink, Source, Step, Transfer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # std::fs::write(dir.path().join("a"), "seventeen bytes!!")?;
//! # let (from, to) = (std::fs::File::open(dir.path().join("a"))?, dir.path().join("b"));
//! # let to = std::fs::File::create(to)?;
//! let kernel = Kernel::probe();
//! let (source, sink) = (Source::whole(&from)?, Sink::new(&to)?);
//! let plan = kernel.plan(&source, &sink, &Policy::default());
//! let mut transfer = Transfer::new(&source, &sink, plan);
//! let (ends, mut buffers) = (SourceAndSink::of(&source, &sink), RelayBuffers::default());
//! while let Some(op) = transfer.next_op() {
//!     match transfer.record(perform(op, &ends, &mut buffers, &kernel)) {
//!         Step::Wait(_side) => unreachable!("files are always ready"),
//!         Step::Refused(refusal) => kernel.learn(&refusal, &source.end, &sink.end),
//!         Step::Again | Step::Done | Step::Failed => (),
//!     }
//! }
//! buffers.give_back(&kernel);
//! let account: Account = transfer.finish()?;
//! assert_eq!(account.bytes(), 17);
//! # Ok(()) }
//! ```

pub mod blocking;
mod perform;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use perform::{RelayBuffers, SourceAndSink, perform};
