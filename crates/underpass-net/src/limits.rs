//! Every bound of the network ground, with its reason.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;
use underpass::limits::JOINED_BYTES_MAX;

use crate::admission::proxies::Proxies;
use crate::error::Error;
use crate::quota::min_rate::MinRate;
use crate::size;

/// The bounds a server keeps. The tool uses [`ConnectionLimits::default`]; tests shorten the times.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConnectionLimits {
    /// Connections open at once, over all workers. What comes beyond waits in the kernel's queue.
    /// The descriptor limit of the process lowers it further: a connection that is being answered
    /// needs two descriptors, its own and the file's.
    pub connections_max: usize,
    /// Connections of one client at once, over all workers; what comes beyond is closed as soon as
    /// it is taken. A client is an IPv4 address or the first 64 bits of an IPv6 address, behind a
    /// proxy that tells it (`proxy`) the one that is told. None is set by default, because a whole
    /// company or a mobile network may share one address. Browsers open six.
    pub connections_per_client_max: Option<NonZeroUsize>,
    /// Handshakes the kernel completes ahead of us, per worker. The kernel clamps it to
    /// `net.core.somaxconn` (4,096 since Linux 5.4), so this only asks for all there is.
    pub backlog: i32,
    /// How long a TCP connection on which nothing has come stays with the kernel
    /// (`TCP_DEFER_ACCEPT`), rounded up to 1, 3, 7 seconds and so on; zero for not at all. One
    /// whose request is there when it is taken costs a twelfth less, which only shows where clients
    /// open a connection for each. Not the default: a client that is connected and says nothing is
    /// not known of, and a server that stops meanwhile resets it.
    #[serde(with = "humantime_serde")]
    pub defer_accept: Duration,
    /// A head and a body that fit into this together leave in one call, the body read behind the
    /// head; 0 for never. A connection may hold as much memory.
    #[serde(deserialize_with = "size::bytes")]
    pub joined_bytes_max: u64,
    /// Unread input kept for one connection. A peer that sends more than a protocol takes is held
    /// back by its own window.
    #[serde(deserialize_with = "size::bytes")]
    pub input_bytes_max: usize,
    /// How long a connection may be silent between two requests. Longer than most clients keep
    /// theirs, so that the client is the one to close and no request meets a closing connection.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// How long a send may go on without any byte moving. It starts anew with every turn that
    /// moved something, and is a backstop: see `acknowledge_timeout`.
    #[serde(with = "humantime_serde")]
    pub stall_timeout: Duration,
    /// How long the peer may acknowledge nothing, or keep its window shut. The kernel measures
    /// this one (`TCP_USER_TIMEOUT`): with megabytes of send buffer a slow reader can need minutes
    /// before the socket is writable again, while its acknowledgements arrive every second.
    #[serde(with = "humantime_serde")]
    pub acknowledge_timeout: Duration,
    /// The least that a peer has to take of an answer, in acknowledged bytes per second, averaged
    /// over `rate_min_window`; one that takes less is reset. 0 for no such limit. It ends readers
    /// of a byte a minute, who hold a connection and a socket buffer for nothing, and nobody whose
    /// line works: the slowest mobile ones carry ten times as much. What the server holds back
    /// itself (a slow disk, `rate_all_max`) is not counted.
    #[serde(deserialize_with = "size::bytes")]
    pub rate_min: u64,
    /// Over how long that is averaged. Players read ahead and pause: it has to be longer than
    /// their pauses. An answer that is sent within one window is not looked at.
    #[serde(with = "humantime_serde")]
    pub rate_min_window: Duration,
    /// The most that one connection is sent, in bytes per second. The kernel spreads the packets
    /// evenly (`SO_MAX_PACING_RATE`) and counts TCP headers too.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_max: Option<NonZeroU64>,
    /// The most that all connections together are sent, in bytes per second, heads included. They
    /// get turns of equal size, one after the other.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_all_max: Option<NonZeroU64>,
    /// The most that all connections of one client together are sent, in bytes per second, heads
    /// included, over all workers. They get turns of equal size, one after the other. A client is
    /// whoever `connections_per_client_max` counts as one; a Unix socket's peer is none.
    #[serde(deserialize_with = "size::some_bytes")]
    pub rate_per_client_max: Option<NonZeroU64>,
    /// Who may say for whom a connection is.
    pub proxy: Proxies,
    /// What is read and thrown away after the last answer, so that a reset does not destroy it.
    #[serde(deserialize_with = "size::bytes")]
    pub linger_bytes_max: usize,
    /// How long that may take.
    #[serde(with = "humantime_serde")]
    pub linger_timeout: Duration,
    /// How long running answers may go on after the first request to stop. After a reload or an
    /// upgrade, how long connections of before may stay idle; their running answers have no limit.
    #[serde(with = "humantime_serde")]
    pub stop_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: 65_536,
            connections_per_client_max: None,
            backlog: 4_096,
            defer_accept: Duration::ZERO,
            joined_bytes_max: JOINED_BYTES_MAX,
            input_bytes_max: 64 << 10,
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(300),
            acknowledge_timeout: Duration::from_secs(60),
            rate_min: 256,
            rate_min_window: Duration::from_secs(60),
            rate_max: None,
            rate_all_max: None,
            rate_per_client_max: None,
            proxy: Proxies::default(),
            linger_bytes_max: 256 << 10,
            linger_timeout: Duration::from_secs(5),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

impl ConnectionLimits {
    /// Looks for limits that contradict each other.
    ///
    /// # Errors
    /// [`Error::Contradiction`]: which, and what to change.
    pub fn check(&self) -> Result<(), Error> {
        let is_below = |rate: Option<NonZeroU64>| {
            rate.is_some_and(|rate| rate.get() < self.rate_min.saturating_mul(2))
        };
        let what = if is_below(self.rate_max) {
            "rate-max is less than twice rate-min: nobody could be fast enough; lower rate-min"
        } else if self.rate_min > 0 && self.rate_min_window < RATE_WINDOW_MIN {
            "rate-min-window is shorter than a second: a lost packet takes as long; raise it"
        } else if self.proxy.is_used() && self.proxy.trusted.is_empty() {
            "proxy.protocol or proxy.forwarded is set, but no network is in proxy.trusted; name one"
        } else if self.proxy.is_used() && self.input_bytes_max < PROXY_BYTES_MAX {
            "input-bytes-max is less than a PROXY header may have; raise it to 4096 at least"
        } else {
            return Ok(());
        };
        Err(Error::Contradiction { what })
    }

    /// What a peer has to take, if anything.
    pub(crate) fn min_rate(&self) -> Option<MinRate> {
        (self.rate_min > 0).then_some(MinRate {
            bytes_per_second: self.rate_min,
            window: self.rate_min_window,
        })
    }
}

/// Over less a rate cannot be told from a packet that is sent again.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);

/// A PROXY header. Without additions it has 232 bytes at the most; proxies add names and details
/// of TLS, hundreds of bytes.
pub(crate) const PROXY_BYTES_MAX: usize = 4 << 10;

/// How long a peer keeps its share of a bandwidth while it takes nothing: as long as a
/// share lasts. Slow peers must not hold the shares of others.
pub(crate) const RESERVATION_TIMEOUT: Duration = Duration::from_millis(20);

/// Clients that have left and whose bandwidth is still sold for a while are remembered, or closing
/// and connecting again would be a way round their limit. Of more than this many the first one is
/// forgotten: that is 2 MiB.
pub(crate) const DEPARTED_CLIENTS_MAX: usize = 16_384;

/// Capacity of a connection's first read. Most request heads fit; a larger one doubles it.
pub(crate) const INPUT_BYTES_START: usize = 4 << 10;

/// Descriptors left aside for everything that is not a connection or its file: listeners, the
/// runtimes' own, standard streams, the mover's pipes.
pub(crate) const DESCRIPTORS_ASIDE: usize = 64;

/// How long to leave the kernel alone after it refused a connection for want of descriptors or
/// memory, unless a connection ends before. Ten tries a second cost nothing and are felt by nobody.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// How long to wait before connecting again to a Unix socket whose queue is full.
pub(crate) const CONNECT_BACKOFF: Duration = Duration::from_millis(10);

/// What all connections of a worker may send before the first one has its turn again, unless there
/// are so many that their smallest turns come to more: within two milliseconds or so a new
/// connection is looked at.
pub(crate) const ROUND_BYTES: u64 = 16 << 20;

/// The same while somebody is connected who is sent nothing, and whose request would have to wait.
pub(crate) const ROUND_BYTES_WATCHED: u64 = 2 << 20;

/// The smallest turn then, which hundreds of fast readers come to: a larger one would have that
/// request wait for tens of milliseconds, a smaller one would cost more for calls than for bytes.
pub(crate) const TURN_BYTES_WATCHED_MIN: u64 = 64 << 10;

/// Threads of one worker that wait for disks, so that the worker itself never does. They sleep
/// while the disk works; this many requests keep it busy, and more would only queue there.
pub(crate) const READERS_MAX: usize = 8;

/// The same trouble is told again only after this long without it.
pub(crate) const LOG_QUIET: Duration = Duration::from_secs(10);

/// How long connections get to notice that everything stops now.
pub(crate) const STOP_NOW_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection that has not sent anything when the server stops has for its first
/// request. A request follows a handshake at once; longer waits only for those that connect ahead.
pub(crate) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Generations of workers alive at once, the one that takes connections included. Each is a set of
/// threads with their files; one that has nothing left to answer is none any more.
pub(crate) const GENERATIONS_MAX: usize = 16;

/// Sockets that are taken over at the start, from a service manager or from a predecessor.
pub(crate) const INHERITED_MAX: usize = 4_096;

/// A message between a server and its successor: a path of a socket fits, and a reason.
pub(crate) const HANDOVER_BYTES_MAX: usize = 8 << 10;

/// How long a new process has until it takes connections. It opens folders and starts threads.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
