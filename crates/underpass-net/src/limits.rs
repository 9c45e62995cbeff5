//! All limits of the network layer, each with its reason.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;
use underpass::limits::JOINED_BYTES_MAX;

use crate::address::proxies::Proxies;
use crate::error::Error;
use crate::size;

/// The limits of a server's connections. The tool uses [`ConnectionLimits::default`]; tests shorten
/// the times.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConnectionLimits {
    /// The maximum number of open connections, over all workers. Further ones wait in the kernel's
    /// queue. The descriptor limit of the process lowers it further: a connection with a response
    /// in progress needs two descriptors, for its socket and for the file.
    pub connections_max: usize,
    /// The maximum number of open connections of one client, over all workers; further ones are
    /// closed when they are accepted. A client is an IPv4 address or the first 64 bits of an IPv6
    /// address; behind a trusted proxy (`proxy`), the address that the proxy names. By default half
    /// of `connections_max`, at least 8: one client never keeps out all others, and a whole company
    /// or a mobile network, which may share one address, has room. The default does not apply to
    /// this machine's own (loopback) connections and those of trusted proxies, and each worker
    /// counts its own connections.
    pub connections_per_client_max: Option<NonZeroUsize>,
    /// A head and a body of at most this total size are sent in one call, with the body read into
    /// memory after the head; 0 disables it. A connection may use as much memory.
    #[serde(deserialize_with = "size::bytes")]
    pub joined_bytes_max: u64,
    /// The maximum idle time between two requests. The default is longer than the timeout of most
    /// clients, so that the client closes first and no request meets a closing connection.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// The maximum time without progress in a transfer. It restarts whenever a byte was moved or
    /// acknowledged: with megabytes of send buffer a slow reader can need minutes before the socket
    /// is writable again, while its acknowledgements arrive every second.
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
    /// The timeout of a TLS handshake.
    #[serde(with = "humantime_serde")]
    pub handshake_timeout: Duration,
    /// The time during which input is read and discarded after the last response, so that a reset
    /// does not destroy it; it restarts while the peer reads. Not an option of configurations.
    #[serde(skip)]
    pub linger_timeout: Duration,
    /// The time that responses in progress may continue after the first request to stop. After a
    /// reload or an upgrade, the time that earlier connections may stay idle; their responses in
    /// progress have no limit.
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
    /// [`Error::Contradiction`] with the limits and the change to make.
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

/// Connections that the kernel completes before they are accepted, per worker. The kernel clamps it
/// to `net.core.somaxconn` (4,096 since Linux 5.4), so this requests the maximum.
pub(crate) const BACKLOG: i32 = 4_096;

/// Unread input that is buffered for one connection: room for a request head of twice the usual
/// maximum of servers. A peer that sends more has to wait (TCP flow control).
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// Input that is read and discarded after the last response: several receive windows.
pub(crate) const LINGER_BYTES_MAX: usize = 256 << 10;

/// The shortest window: below it a slow rate cannot be distinguished from a retransmission.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);

/// The maximum size of a PROXY header. Without TLVs it has at most 232 bytes; proxies add names and
/// TLS details, hundreds of bytes.
pub(crate) const PROXY_BYTES_MAX: usize = 4 << 10;

/// The time after which a peer that accepts nothing loses its reservation: as long as a reservation
/// lasts. Slow peers must not hold back others.
pub(crate) const RESERVATION_TIMEOUT: Duration = Duration::from_millis(20);

/// By default one client may have 1/`CLIENT_SHARE` of all connections.
pub(crate) const CLIENT_SHARE: usize = 2;

/// The minimum number of connections that one client may have: browsers open six.
pub(crate) const CLIENT_CONNECTIONS_MIN: usize = 8;

/// Clients that have departed are remembered as long as their rate is reserved ahead; otherwise
/// reconnecting would evade the limit. Beyond this number, which takes 2 MiB, the oldest is
/// removed.
pub(crate) const DEPARTED_CLIENTS_MAX: usize = 16_384;

/// The capacity of a connection's first read. Most request heads fit; for a larger one it is
/// doubled.
pub(crate) const INPUT_BYTES_START: usize = 4 << 10;

/// Descriptors reserved for everything that is not a connection or its file: of the process, and of
/// each worker (listeners, runtime, the mover's pipes).
pub(crate) const DESCRIPTORS_ASIDE: usize = 16;
pub(crate) const WORKER_DESCRIPTORS_ASIDE: usize = 48;

/// Descriptors that a worker opens before it serves, and that the process opens in addition: for
/// signals, the log and metrics.
pub(crate) const WORKER_DESCRIPTORS: usize = 6;
pub(crate) const START_DESCRIPTORS: usize = 8;

/// Descriptors that a new connection needs: its socket, and two to inspect a file and open it.
pub(crate) const CONNECTION_DESCRIPTORS: usize = 3;

/// The time after a call failed for lack of descriptors in which a worker checks for free ones
/// before it accepts a connection.
pub(crate) const SHORTAGE_KEPT: Duration = Duration::from_secs(1);

/// The pause after `accept` failed for lack of descriptors or memory, unless a connection ends
/// before. Ten attempts a second cost nothing.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The time for which a peer that has sent nothing, or only a part of a request, is not evicted: a
/// millisecond for each connection allowed, within these bounds. So about a thousand new
/// connections a second can send a request while an attacker opens silent ones in masses. A request
/// follows the handshake immediately, and so do its parts, unless a packet is lost, which is
/// repaired within 200 to 500 ms.
pub(crate) const EVICTION_GRACE_MIN: Duration = Duration::from_millis(50);
pub(crate) const EVICTION_GRACE_MAX: Duration = Duration::from_millis(500);

/// The minimum interval between checks for overdue waits, which may last that much longer.
pub(crate) const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// The time to wait for an evictable connection, unless one ends before.
pub(crate) const EVICTION_BACKOFF: Duration = Duration::from_millis(50);

/// One of this many waiting connections is closed at a time, since finding the longest waiting one
/// means checking all.
pub(crate) const EVICTION_SHARE: usize = 1_024;

/// The maximum number of connections that are closed at a time.
pub(crate) const EVICTED_MAX: usize = 32;

/// The interval of keep-alive probes on watched connections, and the number of probes without an
/// answer after which the kernel ends one.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
pub(crate) const KEEPALIVE_PROBES: u32 = 4;

/// Packets without an answer after which a silent peer counts as gone: with the shortest timeout
/// for retransmissions these are sent within 1.4 s.
pub(crate) const UNANSWERED_MIN: u32 = 3;

/// The pause before connecting again to a Unix socket whose queue is full.
pub(crate) const CONNECT_BACKOFF: Duration = Duration::from_millis(10);

/// The sum of the turn sizes of a worker's connections. With up to 16 connections a response of 1
/// MiB is sent in one turn, which takes 6 % less processor time than two.
pub(crate) const TURNS_BYTES: u64 = 16 << 20;

/// Bytes sent to connections before the event loop polls for new events, plus at most one more
/// turn, and as much as first turns that did not wait: a request that arrives meanwhile waits for
/// some sixty microseconds while no response starts.
pub(crate) const ROUND_BYTES: u64 = 512 << 10;

/// The minimum that a slow reader's turn counts as in a round: a small call takes as long as this
/// many bytes of a large one. It may still send a whole turn, which counts in full the next time.
pub(crate) const QUEUED_BYTES_MIN: u64 = 64 << 10;

/// The bytes of an outbox that are encrypted, and sent in one call, at a time. Batches of 64 KiB
/// cost a sixth more processor time per byte.
pub(crate) const SEALED_BATCH_BYTES: usize = 256 << 10;

/// The minimum that an encrypted connection may send in a turn.
pub(crate) const SEALED_TURN_BYTES_MIN: u64 = 64 << 10;

/// After a socket was full, this many bytes are encrypted record by record: bytes that it does not
/// accept stay in the memory of the connection.
pub(crate) const SEALED_CAUTION_BYTES: u64 = 1 << 20;

/// The same for all connections of a worker, after a socket accepted less than it had room for:
/// with thousands of slow readers the kernel runs short of memory for TCP, and the unsent bytes
/// would be kept for each of them.
pub(crate) const SEALED_CAUTION_ALL_BYTES: u64 = 16 << 20;

/// The maximum number of records encrypted with one key of TLS 1.3, and in one connection of TLS
/// 1.2: half of the limit of AES-GCM (RFC 8446, section 5.5).
pub(crate) const KEY_RECORDS_MAX: u64 = 1 << 23;

/// The minimum size of a range for which a connection switches to kernel TLS, which costs several
/// system calls, and memory in the kernel.
pub(crate) const OFFLOADED_BYTES_MIN: u64 = 1 << 20;

/// The time that a connection with kernel TLS waits for room before it retries without an event;
/// doubled each time.
pub(crate) const KERNEL_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The timeout of each call of the kernel TLS self-test, and of the whole test.
pub(crate) const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Records without data (key updates, alerts, empty records) that a peer may send in a burst, and
/// per second.
pub(crate) const TLS_MESSAGES_BURST: u32 = 32;
pub(crate) const TLS_MESSAGES_PER_SECOND: u32 = 10;

/// The burst for a peer that is receiving data, one for each record: the number of records in 64
/// MiB of unread data. Systems for long paths give a connection half of that.
pub(crate) const TLS_MESSAGES_MAX: u32 = 4_096;

/// The maximum number of buffered handshake bytes: client certificates are the longest part.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// The processor time of an encrypted byte, in bytes sent by the kernel alone; turns are smaller by
/// this factor.
pub(crate) const SEALED_COST: u64 = 4;

/// Threads of one worker that wait for disks, so that the worker itself never does. They sleep
/// while the disk works; this many requests keep it busy, and more would only queue there.
pub(crate) const READERS_MAX: usize = 8;

/// The interval between two warnings of a [`LogThrottle`](crate::LogThrottle).
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two identical warnings.
pub(crate) const LOG_SAME_INTERVAL: Duration = Duration::from_secs(60);

/// The time that a reload waits for earlier workers to stop accepting. They stop after the event
/// that they are handling, within milliseconds.
pub(crate) const RETIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that connections have to end when the server stops immediately.
pub(crate) const STOP_NOW_TIMEOUT: Duration = Duration::from_millis(500);

/// The time that a silent connection has for its first request when the server stops. A request
/// usually follows the handshake immediately; only clients that connect in advance take longer.
pub(crate) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of live generations of workers, including the newest. Each is a set of
/// threads with their files; it ends with its last response.
pub(crate) const GENERATIONS_MAX: usize = 16;

/// The maximum number of sockets inherited at the start, from a service manager or a predecessor.
pub(crate) const INHERITED_MAX: usize = 4_096;

/// The maximum size of a handover message: a socket path or a reason fits.
pub(crate) const HANDOVER_BYTES_MAX: usize = 8 << 10;

/// The time that a successor has to accept connections. It opens folders and starts threads.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a failed successor has to print the reason and end, before it is killed.
pub(crate) const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
