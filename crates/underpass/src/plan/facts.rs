//! What planning needs to know of the kernel, as plain data.

use rustix::io::Errno;

use crate::vocabulary::account::Scope;

/// What a kernel is known to refuse between two ends, and whether it has a pipe to lend, at one
/// moment: [`Kernel::facts`](crate::Kernel::facts). The default has refused nothing and has pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFacts {
    /// What was refused before, by mechanism in the order of
    /// [`Mechanism::ALL`](crate::Mechanism::ALL), and how far that holds.
    pub refused: [Option<(Scope, Errno)>; 5],
    /// Whether there is a pipe for splice.
    pub pipes: Pipes,
}

/// Whether a pipe of full size is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipes {
    /// One is idle, or may be opened.
    #[default]
    Available,
    /// As many as there should be are in use, or the kernel grants smaller ones only.
    Exhausted,
}
