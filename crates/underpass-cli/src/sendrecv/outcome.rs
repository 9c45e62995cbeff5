//! The end of a command.

use underpass_sendrecv::Error;

/// A message for the user, and the exit code.
pub(crate) type CommandError = (String, u8);

/// The end of a command.
pub(crate) type CommandResult = Result<(), CommandError>;

/// Returns the end of a command whose transfer has failed.
pub(super) fn failure(error: &Error) -> CommandError {
    (error.to_string(), error.exit_code())
}

/// Returns the end of a command with invalid arguments.
pub(super) fn usage(message: impl Into<String>) -> CommandError {
    (message.into(), 2)
}
