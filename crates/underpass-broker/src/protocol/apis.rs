//! The supported requests and their versions, as listed by ApiVersions.

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Api {
    /// The API key.
    pub key: i16,
    /// The name.
    pub name: &'static str,
    /// The versions that ApiVersions lists.
    pub advertised: (i16, i16),
    /// The first version that is served: clients derive other features from lower ones that
    /// ApiVersions lists, but do not send them.
    pub served_from: i16,
    /// The first version with the flexible encoding.
    pub flexible: i16,
}

/// The API key of ApiVersions.
pub const API_VERSIONS: i16 = 18;

const fn api(key: i16, name: &'static str, advertised: (i16, i16), flexible: i16) -> Api {
    Api {
        key,
        name,
        advertised,
        served_from: advertised.0,
        flexible,
    }
}

/// The supported requests, sorted by key. The latest versions are those of one release, Kafka 4.0:
/// some clients derive the release from them.
pub const APIS: [Api; 38] = [
    Api {
        // librdkafka before 2.11.1 compresses only where it sees version 0 (KAFKA-18659).
        advertised: (0, 12),
        ..api(0, "Produce", (3, 12), 9)
    },
    api(1, "Fetch", (4, 17), 12),
    api(2, "ListOffsets", (1, 10), 6),
    api(3, "Metadata", (0, 13), 9),
    api(8, "OffsetCommit", (2, 9), 8),
    api(9, "OffsetFetch", (1, 9), 6),
    api(10, "FindCoordinator", (0, 6), 3),
    api(11, "JoinGroup", (0, 9), 6),
    api(12, "Heartbeat", (0, 4), 4),
    api(13, "LeaveGroup", (0, 5), 4),
    api(14, "SyncGroup", (0, 5), 4),
    api(15, "DescribeGroups", (0, 6), 5),
    api(16, "ListGroups", (0, 5), 3),
    api(17, "SaslHandshake", (0, 1), i16::MAX),
    api(API_VERSIONS, "ApiVersions", (0, 4), 3),
    api(19, "CreateTopics", (2, 7), 5),
    api(20, "DeleteTopics", (1, 6), 4),
    api(21, "DeleteRecords", (0, 2), 2),
    api(22, "InitProducerId", (0, 5), 2),
    api(23, "OffsetForLeaderEpoch", (2, 4), 4),
    api(29, "DescribeAcls", (1, 3), 2),
    api(30, "CreateAcls", (1, 3), 2),
    api(31, "DeleteAcls", (1, 3), 2),
    api(32, "DescribeConfigs", (1, 4), 4),
    api(33, "AlterConfigs", (0, 2), 2),
    api(35, "DescribeLogDirs", (1, 4), 2),
    api(36, "SaslAuthenticate", (0, 2), 2),
    api(37, "CreatePartitions", (0, 3), 2),
    api(42, "DeleteGroups", (0, 2), 2),
    api(43, "ElectLeaders", (0, 2), 2),
    api(44, "IncrementalAlterConfigs", (0, 1), 1),
    api(46, "ListPartitionReassignments", (0, 0), 0),
    api(47, "OffsetDelete", (0, 0), i16::MAX),
    api(48, "DescribeClientQuotas", (0, 1), 1),
    api(50, "DescribeUserScramCredentials", (0, 0), 0),
    api(51, "AlterUserScramCredentials", (0, 0), 0),
    api(60, "DescribeCluster", (0, 2), 0),
    api(75, "DescribeTopicPartitions", (0, 0), 0),
];

/// Returns the supported request with a key.
pub fn find(key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key == key)
}

/// Returns Kafka's name of an unsupported request, for messages.
pub(crate) fn absent_name(key: i16) -> Option<&'static str> {
    let found = ABSENT.iter().find(|(absent, _)| *absent == key);
    found.map(|(_, name)| *name)
}

/// Requests that clients and tools of Kafka send, but this broker does not support.
const ABSENT: [(i16, &str); 22] = [
    (7, "ControlledShutdown"),
    (24, "AddPartitionsToTxn"),
    (25, "AddOffsetsToTxn"),
    (26, "EndTxn"),
    (27, "WriteTxnMarkers"),
    (28, "TxnOffsetCommit"),
    (34, "AlterReplicaLogDirs"),
    (45, "AlterPartitionReassignments"),
    (49, "AlterClientQuotas"),
    (55, "DescribeQuorum"),
    (57, "UpdateFeatures"),
    (61, "DescribeProducers"),
    (64, "UnregisterBroker"),
    (65, "DescribeTransactions"),
    (66, "ListTransactions"),
    (68, "ConsumerGroupHeartbeat"),
    (69, "ConsumerGroupDescribe"),
    (71, "GetTelemetrySubscriptions"),
    (72, "PushTelemetry"),
    (74, "ListConfigResources"),
    (76, "ShareGroupHeartbeat"),
    (88, "StreamsGroupHeartbeat"),
];
