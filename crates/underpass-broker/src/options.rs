//! The options of a broker, from a TOML file, flags or code, with one schema for all. Keys are
//! Kafka's names if they mean the same.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use underpass_log::CleanerOptions;
use underpass_monitor::StatusOptions;
use underpass_net::{ConnectionLimits, ListenAt, TlsOptions};

/// The options of a broker, its data and its listeners.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct BrokerOptions {
    /// The addresses to listen on.
    #[serde(rename = "listener")]
    pub listeners: Vec<BrokerListener>,
    /// The data folder, like an entry of Kafka's `log.dirs`.
    pub data: PathBuf,
    /// The number of threads that serve connections; the number of cores available to this process
    /// by default.
    pub workers: Option<NonZeroUsize>,
    /// When records are synced to the disk.
    pub fsync: FsyncPolicy,
    /// The ID of this broker, as shown to clients.
    pub node_id: i32,
    /// The handling of replication factors above 1, which one broker cannot provide.
    pub replication: ReplicationPolicy,
    /// The defaults of topics, and the creation of topics that clients ask for.
    pub topics: TopicDefaults,
    /// Consumer groups.
    pub groups: GroupOptions,
    /// Compaction.
    pub cleaner: CleanerSettings,
    /// Logins of clients.
    pub sasl: SaslOptions,
    /// Access control lists; without this table everyone may do everything.
    pub authorizer: Option<AuthorizerOptions>,
    /// Certificates and settings of TLS.
    pub tls: TlsOptions,
    /// Metrics and health.
    pub status: StatusOptions,
    /// The limits of connections.
    pub connections: ConnectionLimits,
    /// The memory for all requests together, in bytes; one request may have 100 MiB.
    #[serde(deserialize_with = "underpass_net::size::bytes")]
    pub request_memory: usize,
}

/// An address to listen on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BrokerListener {
    /// `PORT` of 127.0.0.1, `:PORT` of every interface, `ADDR:PORT`, `unix:/path` or
    /// `systemd[:NAME]`.
    pub at: ListenAt,
    /// The address that clients of this listener are directed to, `HOST:PORT` or `HOST`. By default
    /// each client is directed to the address by which it reached the broker, or with TLS to the
    /// server name that it sent.
    #[serde(default)]
    pub advertised: Option<AdvertisedAddress>,
    /// Whether the listener speaks TLS; by default, if there is a certificate.
    #[serde(default)]
    pub tls: Option<bool>,
    /// The SASL mechanisms by which clients must log in; none by default.
    #[serde(default)]
    pub sasl: Vec<SaslMechanismName>,
    /// Whether PLAIN is offered without TLS, so that passwords can be read on the way.
    #[serde(default)]
    pub passwords_in_clear: bool,
}

/// A SASL mechanism, by its registered name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum SaslMechanismName {
    /// The password itself.
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof of the password.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof of the password.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

/// The options of logins.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct SaslOptions {
    /// A file with users and hashes of their passwords.
    pub users: Option<PathBuf>,
    /// The time after which clients must log in again, in milliseconds; 0 for never.
    #[serde(rename = "connections.max.reauth.ms")]
    pub reauth_ms_max: u64,
    /// The time between a failed login and its response, in milliseconds.
    #[serde(rename = "connection.failed.authentication.delay.ms")]
    pub failure_delay_ms: u64,
}

/// The options of access control.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct AuthorizerOptions {
    /// The principals that may do everything, such as `User:admin`.
    #[serde(rename = "super.users")]
    pub super_users: Vec<String>,
    /// Whether everyone may do everything with resources that no rule is about.
    #[serde(rename = "allow.everyone.if.no.acl.found")]
    pub allow_without_rules: bool,
}

/// When records are synced.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum FsyncPolicy {
    /// Before acks=all is answered; other records within a second. No acknowledged record is lost
    /// if the machine fails.
    #[default]
    Acks,
    /// Every second, regardless of acknowledgements.
    Interval,
    /// When the kernel writes them back, as in Kafka.
    Never,
}

/// The handling of a replication factor, or `min.insync.replicas`, above 1.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicationPolicy {
    /// The value is lowered to 1, and logged.
    #[default]
    Clamp,
    /// The topic is rejected.
    Reject,
}

/// The defaults of topics.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopicDefaults {
    /// Whether topics are created when clients ask for them.
    #[serde(rename = "auto.create.topics.enable")]
    pub auto_create: bool,
    /// The number of partitions.
    #[serde(rename = "num.partitions")]
    pub partitions: i32,
    /// The configuration of topics that do not specify it, under Kafka's names of topic
    /// configurations, such as `retention.ms`.
    pub config: BTreeMap<String, String>,
}

/// The options of consumer groups.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupOptions {
    /// The time that an empty group waits for members before its first generation, in milliseconds.
    #[serde(rename = "group.initial.rebalance.delay.ms")]
    pub initial_rebalance_delay_ms: u64,
    /// The time that offsets of a group without members are kept, in minutes.
    #[serde(rename = "offsets.retention.minutes")]
    pub offsets_retention_minutes: u64,
}

/// The options of compaction.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CleanerSettings {
    /// The memory for the keys of a pass over a partition, in bytes. More keys take more passes.
    #[serde(
        rename = "log.cleaner.dedupe.buffer.size",
        deserialize_with = "underpass_net::size::bytes"
    )]
    pub dedupe_buffer_bytes: usize,
    /// The pause between two checks for partitions to compact, in milliseconds.
    #[serde(rename = "log.cleaner.backoff.ms")]
    pub backoff_ms: u64,
    /// The largest number of bytes read and written per second; 0 for no limit.
    #[serde(
        rename = "log.cleaner.io.max.bytes.per.second",
        deserialize_with = "underpass_net::size::bytes"
    )]
    pub io_bytes_per_second_max: u64,
}

/// A host, and a port if it differs from that of the listener.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub struct AdvertisedAddress {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

/// The default port of Kafka.
pub const PORT: u16 = 9092;

impl Default for BrokerOptions {
    fn default() -> BrokerOptions {
        BrokerOptions {
            listeners: vec![ListenAt::Tcp(([127, 0, 0, 1], PORT).into()).into()],
            data: PathBuf::from("underpass-data"),
            workers: None,
            fsync: FsyncPolicy::default(),
            node_id: 1,
            replication: ReplicationPolicy::default(),
            topics: TopicDefaults::default(),
            groups: GroupOptions::default(),
            cleaner: CleanerSettings::default(),
            sasl: SaslOptions::default(),
            authorizer: None,
            tls: TlsOptions::default(),
            status: StatusOptions::default(),
            connections: ConnectionLimits {
                idle_timeout: Duration::from_secs(600),
                ..ConnectionLimits::default()
            },
            request_memory: 256 << 20,
        }
    }
}

impl Default for TopicDefaults {
    fn default() -> TopicDefaults {
        TopicDefaults {
            auto_create: true,
            partitions: 1,
            config: BTreeMap::new(),
        }
    }
}

impl Default for SaslOptions {
    fn default() -> SaslOptions {
        SaslOptions {
            users: None,
            reauth_ms_max: 0,
            failure_delay_ms: 100,
        }
    }
}

impl Default for GroupOptions {
    fn default() -> GroupOptions {
        GroupOptions {
            initial_rebalance_delay_ms: 3000,
            offsets_retention_minutes: 7 * 24 * 60,
        }
    }
}

impl Default for CleanerSettings {
    fn default() -> CleanerSettings {
        let CleanerOptions {
            dedupe_buffer_bytes,
            backoff,
            ..
        } = CleanerOptions::default();
        CleanerSettings {
            dedupe_buffer_bytes,
            backoff_ms: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX),
            io_bytes_per_second_max: 0,
        }
    }
}

impl From<&CleanerSettings> for CleanerOptions {
    fn from(settings: &CleanerSettings) -> CleanerOptions {
        let no_limit = (settings.io_bytes_per_second_max == 0).then_some(u64::MAX);
        CleanerOptions {
            dedupe_buffer_bytes: settings.dedupe_buffer_bytes,
            backoff: Duration::from_millis(settings.backoff_ms),
            io_bytes_per_second_max: no_limit.unwrap_or(settings.io_bytes_per_second_max),
        }
    }
}

impl From<ListenAt> for BrokerListener {
    fn from(at: ListenAt) -> BrokerListener {
        BrokerListener {
            at,
            advertised: None,
            tls: None,
            sasl: Vec::new(),
            passwords_in_clear: false,
        }
    }
}

impl BrokerListener {
    /// Whether the listener speaks TLS.
    pub(crate) fn is_secured(&self, tls: &TlsOptions) -> bool {
        self.tls.unwrap_or(tls.has_certificate())
    }
}

impl FromStr for AdvertisedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<AdvertisedAddress, String> {
        text.to_owned().try_into()
    }
}

impl BrokerOptions {
    /// Makes clients of all listeners log in as users of a file: by SCRAM, or, with TLS, by PLAIN.
    /// Listeners that have mechanisms keep them.
    pub fn require_logins(&mut self, users: PathBuf) {
        use SaslMechanismName::*;
        self.sasl.users = Some(users);
        for listener in self.listeners.iter_mut().filter(|one| one.sasl.is_empty()) {
            listener.sasl = match listener.is_secured(&self.tls) {
                true => vec![ScramSha256, ScramSha512, Plain],
                false => vec![ScramSha256, ScramSha512],
            };
        }
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// The error and its location in the text.
    pub fn parse(text: &str) -> Result<BrokerOptions, toml::de::Error> {
        toml::from_str(text)
    }
}

impl TryFrom<String> for AdvertisedAddress {
    type Error = String;

    fn try_from(text: String) -> Result<AdvertisedAddress, String> {
        let bad = || format!("{text:?} is no address; expected HOST or HOST:PORT");
        let (host, port) = match text.rsplit_once(':') {
            // An IPv6 address contains colons.
            Some((host, _)) if host.contains(':') && !host.starts_with('[') => (&text[..], None),
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| bad())?))
            }
            _ => (&text[..], None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.is_empty() || host.contains(['/', ' ', ',']) {
            true => Err(bad()),
            false => Ok(AdvertisedAddress {
                host: host.to_owned(),
                port,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_that_of_the_listener() {
        for (text, host, port) in [
            ("kafka.example.org", "kafka.example.org", None),
            ("kafka.example.org:9093", "kafka.example.org", Some(9093)),
            ("192.0.2.1:1", "192.0.2.1", Some(1)),
            ("[::1]:9092", "::1", Some(9092)),
            ("[::1]", "::1", None),
            ("::1", "::1", None),
        ] {
            let address = AdvertisedAddress::try_from(text.to_owned()).unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{text}");
        }
        for text in ["", ":9092", "a:b", "a:70000", "a b", "http://a"] {
            let address = AdvertisedAddress::try_from(text.to_owned());
            assert!(address.is_err(), "{text}");
        }
    }

    #[test]
    fn a_configuration_overrides_the_defaults() {
        let options = BrokerOptions::parse(
            "fsync = 'never'\n[[listener]]\nat = ':9093'\nadvertised = 'a'\n\
             [topics]\n\"num.partitions\" = 4\n\
             config = {\"retention.ms\" = \"1000\"}\n",
        );
        let options = options.unwrap();
        assert_eq!(options.fsync, FsyncPolicy::Never);
        assert_eq!(options.topics.partitions, 4);
        let [listener] = &options.listeners[..] else {
            panic!("{:?}", options.listeners);
        };
        assert_eq!(listener.at, ":9093".parse().unwrap());
        assert_eq!(listener.advertised, "a".parse().ok());
        assert!(options.topics.auto_create);
        assert_eq!(options.topics.config["retention.ms"], "1000");
        let cleaner = "[cleaner]\n\"log.cleaner.dedupe.buffer.size\" = '1MiB'\n\
                       \"log.cleaner.backoff.ms\" = 5";
        let cleaner = CleanerOptions::from(&BrokerOptions::parse(cleaner).unwrap().cleaner);
        assert_eq!(cleaner.dedupe_buffer_bytes, 1 << 20);
        assert_eq!(cleaner.backoff, Duration::from_millis(5));
        assert_eq!(cleaner.io_bytes_per_second_max, u64::MAX);
        let wrong = BrokerOptions::parse("fsnc = 'never'").unwrap_err();
        assert!(wrong.to_string().contains("fsnc"), "{wrong}");
    }
}
