//! The errors of the group coordinator, as Kafka's error codes.

/// The reason why a request of a group member is rejected. The discriminants are Kafka's error
/// codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[repr(i16)]
pub enum GroupError {
    /// the group's metadata could not be written
    #[error("the group's metadata could not be written")]
    UnknownServerError = -1,
    /// the metadata string of the offset is too long
    #[error("the metadata string of the offset is too long")]
    OffsetMetadataTooLarge = 12,
    /// the coordinator is not available; the client retries
    #[error("the coordinator is not available")]
    CoordinatorNotAvailable = 15,
    /// this broker does not coordinate the group; the client looks the coordinator up again
    #[error("this broker does not coordinate the group")]
    NotCoordinator = 16,
    /// the generation is not the group's current one
    #[error("the generation is not the group's current one")]
    IllegalGeneration = 22,
    /// the protocol type differs from the group's, or no protocol is common to all members
    #[error("the member's protocols do not fit those of the group")]
    InconsistentGroupProtocol = 23,
    /// the group id is empty
    #[error("the group id is empty")]
    InvalidGroupId = 24,
    /// the group has no such member
    #[error("the group has no such member")]
    UnknownMemberId = 25,
    /// the session timeout is out of range
    #[error("the session timeout is out of range")]
    InvalidSessionTimeout = 26,
    /// the group rebalances; the member has to join again
    #[error("the group rebalances")]
    RebalanceInProgress = 27,
    /// the commit is larger than a record may be
    #[error("the commit is larger than a record may be")]
    InvalidCommitOffsetSize = 28,
    /// the client may not be a member of the group
    #[error("the client may not be a member of the group")]
    AuthorizationFailed = 30,
    /// the group has members
    #[error("the group has members")]
    NonEmptyGroup = 68,
    /// there is no such group
    #[error("there is no such group")]
    GroupIdNotFound = 69,
    /// the member has to join again with the assigned id (KIP-394)
    #[error("the member has to join again with the assigned id")]
    MemberIdRequired = 79,
    /// a limit of the coordinator is reached
    #[error("a limit of the coordinator is reached")]
    GroupMaxSizeReached = 81,
    /// another member has taken over the instance id (KIP-345)
    #[error("another member has taken over the instance id")]
    FencedInstanceId = 82,
}

impl GroupError {
    /// Returns the error code of Kafka's protocol.
    pub fn code(self) -> i16 {
        self as i16
    }
}

/// The reason why records could not be appended to `__consumer_offsets`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteError {
    /// The append failed and may be repeated.
    Unavailable,
    /// The storage is offline.
    Storage,
    /// A record exceeds the topic's `max.message.bytes`.
    TooLarge,
}

impl WriteError {
    /// Returns the answer to a JoinGroup or SyncGroup request that depended on the write.
    pub(crate) fn of_group(self) -> GroupError {
        match self {
            WriteError::Unavailable => GroupError::CoordinatorNotAvailable,
            WriteError::Storage => GroupError::NotCoordinator,
            WriteError::TooLarge => GroupError::UnknownServerError,
        }
    }

    /// Returns the answer to an OffsetCommit request that depended on the write.
    pub(crate) fn of_commit(self) -> GroupError {
        match self {
            WriteError::TooLarge => GroupError::InvalidCommitOffsetSize,
            WriteError::Unavailable | WriteError::Storage => self.of_group(),
        }
    }
}
