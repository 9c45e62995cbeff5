//! Performs the role in which a measurement has started this program.

use super::role::SubprocessRole;
use super::{mover, process, scratch};
use crate::error::Result;

impl SubprocessRole {
    /// Performs the role.
    ///
    /// # Errors
    /// What failed, for standard error.
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
