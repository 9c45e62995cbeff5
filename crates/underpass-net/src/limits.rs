//! All limits of the network layer, each with its reason.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;
use underpass::limits::JOINED_BYTES_MAX;

use crate::admission::proxies::Proxies;
use crate::error::Error;
use crate::size;

/// The limits of a server's connections. The tool uses [`ConnectionLimits::default`]; tests shorten
/// the times.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConnectionLimits {
    /// Connections open at once, over all workers. Further ones wait in the kernel's queue.
    /// The descriptor limit of the process lowers it further: a connection that is being answered
    /// needs two descriptors, its own and the file's.
    pub connections_max: usize,
    /// Connections of one client at once, over all workers; further ones are closed when they are
    /// accepted. A client is an IPv4 address or the first 64 bits of an IPv6 address; behind a
    /// trusted proxy (`proxy`), the address that the proxy names. By default half of
    /// `connections_max`, at least 8: one client never keeps out all others, and a whole company or
    /// a mobile network, which may share one address, has room. The default does not hold for this
    /// machine's own (loopback) connections and those of trusted proxies, and each worker counts
    /// its own connections.
    pub connections_per_client_max: Option<NonZeroUsize>,
    /// A head and a body that together have at most this size are sent in one call, with the body
    /// read into memory behind the head; 0 disables it. A connection may use as much memory.
    #[serde(deserialize_with = "size::bytes")]
    pub joined_bytes_max: u64,
    /// How long a connection may be idle between two requests. The default is longer than the
    /// timeout of most clients, so that the client closes first and no request meets a closing
    /// connection.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// How long a transfer may make no progress at all. It restarts whenever a byte has moved or
    /// been acknowledged: with megabytes of send buffer a slow reader can need minutes before the
    /// socket is writable again, while its acknowledgements arrive every second.
    #[serde(with = "humantime_serde")]
    pub stall_timeout: Duration,
    /// The minimum rate of a transfer, in acknowledged (sending) or received bytes per second,
    /// averaged over `rate_min_window`; a slower peer is reset. 0 disables it. It ends connections
    /// that read a byte a minute to occupy a connection and a socket buffer; the slowest mobile
    /// networks are ten times as fast as the default. Delays of the server itself (a slow disk,
    /// `rate_all_max`) do not count.
    #[serde(deserialize_with = "size::bytes")]
    pub rate_min: u64,
    /// The window of that average. Media players read ahead and pause: it must be longer than their
    /// pauses. A response that is sent within one window is not checked.
    #[serde(with = "humantime_serde")]
    pub rate_min_window: Duration,
    /// The maximum rate of one connection, in bytes per second. The kernel paces the packets
    /// (`SO_MAX_PACING_RATE`) and includes TCP headers.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_max: Option<NonZeroU64>,
    /// The maximum rate of all connections together, in bytes per second, heads included. They get
    /// turns of equal size, one after another.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_all_max: Option<NonZeroU64>,
    /// The maximum rate of all connections of one client together, in bytes per second, heads
    /// included, over all workers. They get turns of equal size, one after another. Clients are
    /// distinguished as for `connections_per_client_max`; peers of Unix sockets are not limited.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_per_client_max: Option<NonZeroU64>,
    /// The proxies that are trusted to name the client.
    pub proxy: Proxies,
    /// How long a TLS handshake may take.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// How long input is read and discarded after the last response, so that a reset does not
    /// destroy it. No option: it begins again while the peer reads.
    #[serde(skip)]
    pub linger_timeout: Duration,
    /// How long responses in progress may continue after the first request to stop. After a reload
    /// or an upgrade, how long earlier connections may stay idle; their responses in progress have
    /// no limit.
    #[serde(with = "humantime_serde")]
    pub stop_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: 65_536,
            connections_per_client_max: None,
            joined_bytes_max: JOINED_BYTES_MAX,
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(300),
            rate_min: 256,
            rate_min_window: Duration::from_secs(300),
            rate_max: None,
            rate_all_max: None,
            rate_per_client_max: None,
            proxy: Proxies::default(),
            handshake_timeout: Duration::from_secs(10),
            linger_timeout: Duration::from_secs(5),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

impl ConnectionLimits {
    /// Checks for limits that contradict each other.
    ///
    /// # Errors
    /// [`Error::Contradiction`]: which ones, and what to change.
    pub fn check(&self) -> Result<(), Error> {
        let is_below = |rate: Option<NonZeroU64>| {
            rate.is_some_and(|rate| rate.get() < self.rate_min.saturating_mul(2))
        };
        let what = if self.connections_max == 0 {
            "connections-max is 0: nobody could connect; raise it"
        } else if is_below(self.rate_max) {
            "rate-max is less than twice rate-min: no client could be fast enough; lower rate-min"
        } else if self.rate_min > 0 && self.rate_min_window < RATE_WINDOW_MIN {
            "rate-min-window is shorter than a second, which a lost packet may take; raise it"
        } else if self.proxy.is_used() && self.proxy.trusted.is_empty() {
            "proxy.protocol or proxy.forwarded is set, but no network is in proxy.trusted; name one"
        } else {
            return Ok(());
        };
        Err(Error::Contradiction { what })
    }
}

/// Connections that the kernel completes before they are accepted, per worker: as many as
/// `net.core.somaxconn` allows since Linux 5.4.
pub(crate) const BACKLOG: i32 = 4_096;

/// Unread input that is buffered for one connection: a head of a request, twice as large as usual
/// servers allow. A peer that sends more has to wait (TCP flow control).
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// Input that is read and discarded after the last response: what a window holds, several times.
pub(crate) const LINGER_BYTES_MAX: usize = 256 << 10;

/// Over a shorter time a slow rate cannot be distinguished from a retransmission.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);

/// The size of a PROXY header. Without TLVs it has at most 232 bytes; proxies add names and details
/// of TLS, hundreds of bytes.
pub(crate) const PROXY_BYTES_MAX: usize = 4 << 10;

/// How long a peer keeps its reservation while it takes nothing: as long as a reservation lasts.
/// Slow peers must not hold back others.
pub(crate) const RESERVATION_TIMEOUT: Duration = Duration::from_millis(20);

/// One client may have one of so many shares of all connections, unless it is configured otherwise.
pub(crate) const CLIENT_SHARE: usize = 2;

/// Connections of one client that are admitted however few there may be: browsers open six.
pub(crate) const CLIENT_CONNECTIONS_MIN: usize = 8;

/// Clients that have departed are remembered as long as their rate is reserved ahead; otherwise
/// reconnecting would evade the limit. Beyond this many, which is 2 MiB, the first one is
/// forgotten.
pub(crate) const DEPARTED_CLIENTS_MAX: usize = 16_384;

/// The capacity of a connection's first read. Most request heads fit; for a larger one it is
/// doubled.
pub(crate) const INPUT_BYTES_START: usize = 4 << 10;

/// Descriptors reserved for everything that is not a connection or its file: of the process, and of
/// each worker (listeners, runtime, the mover's pipes).
pub(crate) const DESCRIPTORS_ASIDE: usize = 16;
pub(crate) const WORKER_DESCRIPTORS_ASIDE: usize = 48;

/// What a worker opens before it serves, and what the process opens beside workers: for signals,
/// the log and metrics.
pub(crate) const WORKER_DESCRIPTORS: usize = 6;
pub(crate) const START_DESCRIPTORS: usize = 8;

/// What a new connection needs: its socket, and two to look at a file and to open it.
pub(crate) const CONNECTION_DESCRIPTORS: usize = 3;

/// How long after a call failed for want of descriptors a worker asks whether there are any before
/// it accepts a connection.
pub(crate) const SHORTAGE_KEPT: Duration = Duration::from_secs(1);

/// How long to wait after `accept` failed for lack of descriptors or memory, unless a connection
/// ends before. Ten attempts a second cost nothing.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How long a peer that has sent nothing, or only a part of a request, is spared when connections
/// are closed to make room for new ones: a millisecond for each connection that there may be,
/// within these bounds. So about a thousand new connections a second get their chance while
/// somebody opens silent ones in masses. A request follows the handshake at once, and its parts
/// follow each other, unless a packet is lost, which is repaired within 200 to 500 ms.
pub(crate) const EVICTION_GRACE_MIN: Duration = Duration::from_millis(50);
pub(crate) const EVICTION_GRACE_MAX: Duration = Duration::from_millis(500);

/// How long a worker does not look again for connections whose wait is over: they may wait that
/// much longer.
pub(crate) const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// How long to wait for a connection that may be closed, unless one ends before.
pub(crate) const EVICTION_BACKOFF: Duration = Duration::from_millis(50);

/// Of so many waiting connections one is closed at a time, since finding the longest waiting one
/// takes a look at each.
pub(crate) const EVICTION_SHARE: usize = 1_024;

/// Connections that are closed at a time, at most.
pub(crate) const EVICTED_MAX: usize = 32;

/// How long to wait before connecting again to a Unix socket whose queue is full.
pub(crate) const CONNECT_BACKOFF: Duration = Duration::from_millis(10);

/// What the connections of a worker share in the sizes of their turns. With up to 16 connections a
/// response of 1 MiB leaves in one turn, which takes 6 % less processor time than two.
pub(crate) const TURNS_BYTES: u64 = 16 << 20;

/// What connections are sent before the event loop looks for new events, with at most one more
/// turn, and as much as first turns that did not wait: a request that comes meanwhile waits for
/// some sixty microseconds while no response begins.
pub(crate) const ROUND_BYTES: u64 = 512 << 10;

/// What the turn of a slow reader counts as in a round, at least: a small call takes as long as so
/// many bytes of a large one. It may send a whole turn all the same, and counts as that next time.
pub(crate) const QUEUED_BYTES_MIN: u64 = 64 << 10;

/// What of an outbox is encrypted at a time, and leaves by one call. Batches of 64 KiB cost a sixth
/// more processor time per byte.
pub(crate) const SEALED_BATCH_BYTES: usize = 256 << 10;

/// The least that an encrypted connection is allowed in a turn.
pub(crate) const SEALED_TURN_BYTES_MIN: u64 = 64 << 10;

/// Once a socket was full, so many bytes are encrypted record by record: what it does not take
/// waits in the memory of its connection.
pub(crate) const SEALED_CAUTION_BYTES: u64 = 1 << 20;

/// The same for all connections of a worker, once a socket took less than it had room for: with
/// thousands of slow readers the kernel runs short of memory for TCP, and what sockets do not take
/// would be kept for each of them.
pub(crate) const SEALED_CAUTION_ALL_BYTES: u64 = 16 << 20;

/// How many records are encrypted with one key of TLS 1.3, and in one connection of TLS 1.2: half
/// of what AES-GCM allows (RFC 8446, section 5.5).
pub(crate) const KEY_RECORDS_MAX: u64 = 1 << 23;

/// A range is worth the change to kernel TLS if it has so many bytes: that costs several system
/// calls, and memory in the kernel.
pub(crate) const OFFLOADED_BYTES_MIN: u64 = 1 << 20;

/// How long a connection with kernel TLS waits for room before it tries again unasked; twice as
/// long each time.
pub(crate) const KERNEL_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How long a call of the self-test of kernel TLS may take, and all of it.
pub(crate) const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Records without data (key updates, alerts, empty records) that a peer may send at once, and in a
/// second.
pub(crate) const TLS_MESSAGES_BURST: u32 = 32;
pub(crate) const TLS_MESSAGES_PER_SECOND: u32 = 10;

/// The same for a peer that is being sent something, one for each record: as many as there are in
/// 64 MiB that it has not read. Systems for long paths give a connection half of that.
pub(crate) const TLS_MESSAGES_MAX: u32 = 4_096;

/// Bytes of a handshake that wait for their end: certificates of clients are the longest.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// An encrypted byte costs as much processor time as so many that the kernel sends alone: turns are
/// smaller by as much.
pub(crate) const SEALED_COST: u64 = 4;

/// Threads of one worker that wait for disks, so that the worker itself never does. They sleep
/// while the disk works; this many requests keep it busy, and more would only queue there.
pub(crate) const READERS_MAX: usize = 8;

/// Time between two warnings about events of one kind.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// The same for warnings with the same words.
pub(crate) const LOG_SAME_INTERVAL: Duration = Duration::from_secs(60);

/// How long a reload waits until earlier workers accept no more. They do after the event that they
/// are handling, within milliseconds.
pub(crate) const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long connections have to end when the server stops at once.
pub(crate) const STOP_NOW_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection that has sent nothing when the server stops has for its first request. A
/// request usually follows the handshake at once; only clients that connect in advance take longer.
pub(crate) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Generations of workers alive at once, including the newest. Each is a set of threads with their
/// files; it ends with its last response.
pub(crate) const GENERATIONS_MAX: usize = 16;

/// Sockets that are inherited at the start, from a service manager or from a predecessor.
pub(crate) const INHERITED_MAX: usize = 4_096;

/// The size of a message between a server and its successor: a socket path or a reason fits.
pub(crate) const HANDOVER_BYTES_MAX: usize = 8 << 10;

/// How long a successor has until it accepts connections. It opens folders and starts threads.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a successor that has failed may take to end by itself: it prints why.
pub(crate) const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
