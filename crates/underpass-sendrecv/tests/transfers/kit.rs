//! Two sides, files and trees, and a proxy that cuts connections.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use tempfile::TempDir;
use underpass_net::ConnectionLimits;
use underpass_sendrecv::{
    Attributes, ConnectOptions, Encryption, Error, Existing, HiddenNames, Item, KeptTicket,
    ListenOptions, ReceiveOptions, Ticket, TransferProgress, TransferRole, WaitingSide, pull, push,
};
use underpass_testkit::{SeededRandom, WAIT_MAX};

/// A waiting side.
pub(crate) struct Waiting {
    pub(crate) ticket: Ticket,
    pub(crate) progress: Arc<TransferProgress>,
    shutdown: underpass_net::Shutdown,
    ended: JoinHandle<bool>,
}

impl Waiting {
    pub(crate) fn start(role: TransferRole, encryption: Encryption, states: &Path) -> Waiting {
        let kept = KeptTicket::open(states, "test").unwrap();
        let options = ListenOptions {
            at: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            encryption,
            count: Some(1),
            limits: ConnectionLimits::default(),
        };
        let listening = WaitingSide::start(role, &options, kept).unwrap();
        Waiting {
            ticket: listening.ticket.clone(),
            progress: Arc::clone(&listening.progress),
            shutdown: listening.shutdown(),
            ended: spawn(move || listening.wait()),
        }
    }

    /// Waits until the transfer is complete.
    pub(crate) fn complete(self) {
        assert!(self.ended.join().unwrap());
    }

    /// Stops before the transfer is complete.
    pub(crate) fn stop(self) {
        self.shutdown.escalate();
        self.shutdown.escalate();
        assert!(!self.ended.join().unwrap());
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ticket.sockets().next().unwrap()
    }
}

/// Both sides' folders.
pub(crate) struct Folders {
    top: TempDir,
}

impl Folders {
    pub(crate) fn new() -> Folders {
        let top = tempfile::tempdir().unwrap();
        for name in ["from", "to", "states"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        Folders { top }
    }

    pub(crate) fn from(&self) -> PathBuf {
        self.top.path().join("from")
    }

    pub(crate) fn to(&self) -> PathBuf {
        self.top.path().join("to")
    }

    pub(crate) fn states(&self) -> PathBuf {
        self.top.path().join("states")
    }

    pub(crate) fn target(&self) -> ReceiveOptions {
        ReceiveOptions {
            folder: self.to(),
            existing: Existing::Kept,
            hidden: HiddenNames::Refused,
            keep_free: 0,
            state: self.states().join("pull"),
        }
    }

    pub(crate) fn receiver(&self, encryption: Encryption) -> Waiting {
        Waiting::start(
            TransferRole::Receive(self.target()),
            encryption,
            &self.states(),
        )
    }

    pub(crate) fn sender(&self, items: &[Item], encryption: Encryption) -> Waiting {
        let role = TransferRole::Offer(items.to_vec(), Attributes::Usual);
        Waiting::start(role, encryption, &self.states())
    }

    /// Returns what the receiver has, apart from its own folder.
    pub(crate) fn received(&self) -> BTreeMap<String, String> {
        let mut all = tree_of(&self.to());
        all.retain(|path, _| !path.starts_with(".underpass-uploads"));
        all
    }
}

/// Returns the items at these paths.
pub(crate) fn items(paths: &[PathBuf]) -> Vec<Item> {
    paths.iter().map(|path| Item::at(path).unwrap()).collect()
}

pub(crate) fn options(ticket: &Ticket, to: Option<SocketAddr>) -> ConnectOptions {
    ConnectOptions {
        ticket: ticket.clone(),
        to: to.into_iter().collect(),
        limits: ConnectionLimits::default(),
        retry_timeout: WAIT_MAX,
    }
}

pub(crate) fn send(options: &ConnectOptions, items: &[Item]) -> Result<(), Error> {
    push(options, items, Attributes::Usual, &Arc::default())
}

pub(crate) fn receive(options: &ConnectOptions, target: &ReceiveOptions) -> Result<(), Error> {
    pull(options, target, &Arc::default())
}

/// Makes a tree with files of many sizes, links, holes, modes and odd names.
pub(crate) fn make_tree(top: &Path, seed: u64, files: usize) {
    let mut random = SeededRandom::new(seed);
    fs::create_dir_all(top.join("empty")).unwrap();
    for index in 0..files {
        let folder = top
            .join(format!("d{}", index % 7))
            .join(format!("e{}", index % 3));
        fs::create_dir_all(&folder).unwrap();
        let size = match index % 5 {
            0 => 0,
            1 => 1 + random.below(512),
            2 => 4096,
            3 => random.below(200_000),
            _ => random.below(3_000),
        };
        let content = underpass_testkit::content(seed + index as u64, size as usize);
        let path = folder.join(format!("f {index} ä"));
        fs::write(&path, content).unwrap();
        let mode = [0o644, 0o600, 0o755, 0o444][index % 4];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(
        top.join("large"),
        underpass_testkit::content(seed, 3_000_000),
    )
    .unwrap();
    fs::hard_link(top.join("large"), top.join("large too")).unwrap();
    std::os::unix::fs::symlink("large", top.join("link")).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(5_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 70_000], 2_000_000).unwrap();
}

/// Returns every path of a tree with its type, mode, time and the hash of its content.
pub(crate) fn tree_of(top: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let what = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                left.push(path.clone());
                format!("folder {:o}", metadata.mode() & 0o7777)
            } else {
                let hash = underpass_testkit::sha256(fs::read(&path).unwrap());
                let (mode, time) = (metadata.mode() & 0o7777, metadata.mtime());
                format!(
                    "file {mode:o} {} {time} {hash} {}",
                    metadata.len(),
                    metadata.nlink()
                )
            };
            let name = path.strip_prefix(top).unwrap();
            found.insert(name.to_str().unwrap().to_owned(), what);
        }
    }
    found
}

/// A proxy that resets connections after some bytes, until it has done so often enough.
pub(crate) struct CuttingProxy {
    pub(crate) address: SocketAddr,
    /// Bytes that were passed on, in both directions.
    pub(crate) passed: Arc<AtomicU64>,
    /// Cuts that are left.
    pub(crate) left: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl CuttingProxy {
    pub(crate) fn start(to: SocketAddr, seed: u64, cuts: u64, bytes_max: u64) -> CuttingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = CuttingProxy {
            address: listener.local_addr().unwrap(),
            passed: Arc::default(),
            left: Arc::new(AtomicU64::new(cuts)),
            over: Arc::default(),
        };
        let random = Arc::new(Mutex::new(SeededRandom::new(seed)));
        let (passed, left) = (Arc::clone(&proxy.passed), Arc::clone(&proxy.left));
        let over = Arc::clone(&proxy.over);
        spawn(move || {
            for client in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
                let budget = match left.load(Relaxed) {
                    0 => u64::MAX,
                    _ => 1 + random.lock().unwrap().below(bytes_max),
                };
                let budget = Arc::new(AtomicU64::new(budget));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let ends = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let counts = (Arc::clone(&passed), Arc::clone(&left), Arc::clone(&budget));
                    spawn(move || pass_on(ends, counts));
                }
            }
        });
        proxy
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

type Counts = (Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicU64>);

/// Passes bytes on until the budget of the connection is used up, and then resets both sides.
fn pass_on((mut from, mut to): (TcpStream, TcpStream), (passed, left, budget): Counts) {
    from.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let mut buffer = vec![0; 32 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) | Err(_) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(read) => read as u64,
        };
        let before = budget.load(Relaxed);
        if before < read {
            if before > 0 && budget.swap(0, Relaxed) > 0 {
                let _ = to.write_all(&buffer[..before as usize]);
                let now = left.load(Relaxed);
                left.store(now.saturating_sub(1), Relaxed);
            }
            for socket in [&from, &to] {
                let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
                let _ = socket.shutdown(Shutdown::Both);
            }
            return;
        }
        if budget.load(Relaxed) != u64::MAX {
            budget.fetch_sub(read, Relaxed);
        }
        passed.fetch_add(read, Relaxed);
        if to.write_all(&buffer[..read as usize]).is_err() {
            return;
        }
    }
}
