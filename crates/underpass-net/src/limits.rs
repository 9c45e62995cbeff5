//! Every bound of the network ground, with its reason.

use std::time::Duration;

use serde::Deserialize;
use underpass::limits::JOINED_BYTES_MAX;

/// The bounds a server keeps. [`Limits::default`] is what the tool uses; tests shorten the times.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Connections open at once, over all workers. What comes beyond waits in the kernel's queue.
    /// The descriptor limit of the process lowers it further: a connection that is being answered
    /// needs two descriptors, its own and the file's.
    pub connections_max: usize,
    /// Handshakes the kernel completes ahead of us, per worker. The kernel clamps it to
    /// `net.core.somaxconn` (4,096 since Linux 5.4), so this only asks for all there is.
    pub backlog: i32,
    /// A head and a body that fit into this together leave in one call, the body read behind the
    /// head; 0 for never. A connection may hold as much memory.
    pub joined_bytes_max: u64,
    /// Unread input kept for one connection. A peer that sends more than a protocol takes is held
    /// back by its own window.
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
    /// What is read and thrown away after the last answer, so that a reset does not destroy it.
    pub linger_bytes_max: usize,
    /// How long that may take.
    #[serde(with = "humantime_serde")]
    pub linger_timeout: Duration,
    /// How long running answers may go on after the first request to stop. After a reload or an
    /// upgrade, how long connections of before may stay idle; their running answers have no limit.
    #[serde(with = "humantime_serde")]
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 65_536,
            backlog: 4_096,
            joined_bytes_max: JOINED_BYTES_MAX,
            input_bytes_max: 64 << 10,
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(300),
            acknowledge_timeout: Duration::from_secs(60),
            linger_bytes_max: 256 << 10,
            linger_timeout: Duration::from_secs(5),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

/// Capacity of a connection's first read. Most request heads fit; a larger one doubles it.
pub(crate) const INPUT_BYTES_START: usize = 4 << 10;

/// Descriptors left aside for everything that is not a connection or its file: listeners, the
/// runtimes' own, standard streams, the mover's pipes.
pub(crate) const DESCRIPTORS_ASIDE: usize = 64;

/// How long to leave the kernel alone after it refused a connection for want of descriptors or
/// memory, unless a connection ends before. Ten tries a second cost nothing and are felt by nobody.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What all connections of a worker may send before the first one has its turn again, unless there
/// are so many that their smallest turns come to more: within two milliseconds or so a new
/// connection is looked at.
pub(crate) const ROUND_BYTES: u64 = 16 << 20;

/// The same while somebody is connected who is sent nothing, and whose request would have to wait.
pub(crate) const ROUND_BYTES_WATCHED: u64 = 2 << 20;

/// Threads of one worker that wait for disks, so that the worker itself never does. They sleep
/// while the disk works; this many requests keep it busy, and more would only queue there.
pub(crate) const READERS_MAX: usize = 8;

/// The same trouble is told again only after this long without it.
pub(crate) const TROUBLE_QUIET: Duration = Duration::from_secs(10);

/// How long connections get to notice that everything stops now.
pub(crate) const STOP_NOW_TIMEOUT: Duration = Duration::from_millis(500);

/// Permissions of a Unix socket's file where none are asked for: who gets to its folder may
/// connect, as with a port of this machine.
pub(crate) const SOCKET_MODE: u32 = 0o666;

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
