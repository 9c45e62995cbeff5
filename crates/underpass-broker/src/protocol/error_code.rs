//! The error codes of Kafka that are in use.

/// An error in a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i16)]
pub(crate) enum ErrorCode {
    None = 0,
    UnknownServerError = -1,
    OffsetOutOfRange = 1,
    CorruptMessage = 2,
    UnknownTopicOrPartition = 3,
    MessageTooLarge = 10,
    CoordinatorNotAvailable = 15,
    InvalidTopic = 17,
    InvalidRequiredAcks = 21,
    TopicAuthorizationFailed = 29,
    GroupAuthorizationFailed = 30,
    ClusterAuthorizationFailed = 31,
    InvalidTimestamp = 32,
    UnsupportedSaslMechanism = 33,
    IllegalSaslState = 34,
    UnsupportedVersion = 35,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    InvalidRequest = 42,
    PolicyViolation = 44,
    OutOfOrderSequenceNumber = 45,
    InvalidProducerEpoch = 47,
    TransactionalIdAuthorizationFailed = 53,
    SecurityDisabled = 54,
    KafkaStorageError = 56,
    SaslAuthenticationFailed = 58,
    FetchSessionIdNotFound = 70,
    InvalidFetchSessionEpoch = 71,
    FencedLeaderEpoch = 74,
    UnknownLeaderEpoch = 75,
    UnsupportedCompressionType = 76,
    ElectionNotNeeded = 84,
    GroupSubscribedToTopic = 86,
    InvalidRecord = 87,
    ResourceNotFound = 91,
    DuplicateResource = 92,
    UnacceptableCredential = 93,
    UnknownTopicId = 100,
    FetchSessionTopicIdError = 106,
    MismatchedEndpointType = 114,
    UnsupportedEndpointType = 115,
}

/// An error with a message.
pub(crate) type Refused = (ErrorCode, String);

impl ErrorCode {
    pub(crate) fn number(self) -> i16 {
        self as i16
    }
}
