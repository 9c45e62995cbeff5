//! The measured programs. Each one is a separate process, measured from outside.

pub(crate) mod mover;
pub(crate) mod named;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod role;
pub(crate) mod scratch;
pub(crate) mod server;
pub(crate) mod server_metrics;
pub(crate) mod worker_process;

use role::SubprocessRole;

use crate::error::Result;

impl SubprocessRole {
    /// Performs the role in which a measurement has started this program.
    ///
    /// # Errors
    /// The reason, for standard error.
    pub fn perform(self) -> Result<()> {
        match self {
            SubprocessRole::Become { processor, command } => {
                process::become_command(processor, &command)
            }
            SubprocessRole::TakeCare { directory } => scratch::take_care(&directory),
            SubprocessRole::Mover(settings) => mover::work(settings),
        }
    }
}
