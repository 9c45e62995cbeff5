//! Runs this program in the role in which a measurement has started it.

use super::role::Role;
use super::{mover, process, scratch};
use crate::error::Result;

impl Role {
    /// Performs the role.
    ///
    /// # Errors
    /// What went wrong, for standard error.
    pub fn play(self) -> Result<()> {
        match self {
            Role::Become { processor, command } => process::become_command(processor, &command),
            Role::TakeCare(directory) => scratch::take_care(&directory),
            Role::Mover(settings) => mover::work(&settings),
        }
    }
}
