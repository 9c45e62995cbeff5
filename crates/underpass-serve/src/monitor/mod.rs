//! Metrics and health, on a listener and a thread of their own.
//!
//! | path | what it says |
//! |---|---|
//! | `/metrics` | all counts, in the text format of Prometheus |
//! | `/health` | 200 while the server runs, 503 while it stops |
//! | `/ready` | the same: it listens only after all workers take connections |
//!
//! Apart from the workers, so that a server that is busy still tells how busy it is, and whoever
//! may read files may not read this. One request a connection; every one has its deadline.

mod metrics;
mod process;

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use serde::Deserialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;
use underpass_net::{Shutdown, ShutdownPhase};

use crate::error::Error;
use crate::http::date::date_bytes;
use crate::http::decimal::push_decimal;
use crate::http::status::{HttpError, Status};
use crate::limits::{
    ACCEPT_BACKOFF, MONITOR_CONNECTIONS_MAX, MONITOR_HEAD_BYTES_MAX, MONITOR_TIMEOUT,
};
use crate::metrics::registry::{MetricsRegistry, Presence};
use crate::request::head::{HeadProgress, HeadScanner, RequestHead};
use crate::request::request_line::Method;
use crate::request::target::HttpTarget;

/// Who may ask for metrics, and where.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StatusOptions {
    /// Where metrics and health are told: `127.0.0.1:9090` or `unix:/run/underpass.sock`. Nowhere
    /// unless told otherwise: whoever reaches it may read it.
    pub listen: Option<StatusAddress>,
}

/// Where metrics are told.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub enum StatusAddress {
    /// An address and port; with port 0 the kernel chooses a port, which nobody is told.
    Tcp(SocketAddr),
    /// The path of a Unix socket, written `unix:PATH`. One that nobody listens on is replaced.
    Unix(PathBuf),
}

impl FromStr for StatusAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusAddress, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(StatusAddress::Unix(path.into())),
            _ => text.parse().map(StatusAddress::Tcp).map_err(|_| {
                format!("{text:?} is no address for metrics; write 127.0.0.1:9090 or unix:PATH")
            }),
        }
    }
}

impl TryFrom<String> for StatusAddress {
    type Error = String;

    fn try_from(text: String) -> Result<StatusAddress, String> {
        text.parse()
    }
}

impl fmt::Display for StatusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusAddress::Tcp(address) => write!(f, "http://{address}"),
            StatusAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A monitor that has its address, and a runtime, but answers nobody yet.
#[derive(Debug)]
pub(crate) struct Monitor {
    runtime: Runtime,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Who else may have the address at the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Beside {
    Nobody,
    /// The process that this one takes over from.
    Predecessor,
}

/// Those who ask for metrics are few.
const BACKLOG: i32 = 128;

/// What every answer is made of.
struct Sources {
    board: Arc<MetricsRegistry>,
    shutdown: Shutdown,
    started: SystemTime,
    places: Arc<Semaphore>,
}

impl Monitor {
    /// Takes the address, if there is one; where this process succeeds another one, beside that one
    /// or from it.
    pub(crate) fn listen(
        options: &StatusOptions,
        beside: Beside,
    ) -> Result<Option<Monitor>, Error> {
        let Some(address) = &options.listen else {
            return Ok(None);
        };
        let monitor = Monitor::on(address, beside).map_err(|source| Error::Status {
            listen: address.to_string(),
            source,
        })?;
        Ok(Some(monitor))
    }

    fn on(address: &StatusAddress, beside: Beside) -> io::Result<Monitor> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let inside = runtime.enter();
        let listener = match address {
            StatusAddress::Tcp(address) => {
                let listener = bind(*address, beside)?;
                Listener::Tcp(TcpListener::from_std(listener)?)
            }
            StatusAddress::Unix(path) => {
                match beside {
                    Beside::Nobody => remove_abandoned(path)?,
                    Beside::Predecessor => fs::remove_file(path).or_else(|error| {
                        (error.kind() == io::ErrorKind::NotFound)
                            .then_some(())
                            .ok_or(error)
                    })?,
                }
                Listener::Unix(UnixListener::bind(path)?, path.clone())
            }
        };
        drop(inside);
        Ok(Monitor { runtime, listener })
    }

    /// Answers on a thread of its own until nobody works for the server any more.
    pub(crate) fn start(
        self,
        board: Arc<MetricsRegistry>,
        shutdown: Shutdown,
        presence: &Presence,
    ) -> Result<(), Error> {
        let gone = presence.absence();
        let spawned = thread::Builder::new()
            .name("monitor".into())
            .spawn(move || self.run(board, shutdown, gone));
        match spawned {
            Ok(_thread) => Ok(()),
            Err(source) => Err(Error::Thread {
                doing: "start the thread for metrics",
                source,
            }),
        }
    }

    fn run(self, board: Arc<MetricsRegistry>, shutdown: Shutdown, gone: impl Future<Output = ()>) {
        let Monitor { runtime, listener } = self;
        let sources = Rc::new(Sources {
            board,
            shutdown,
            started: SystemTime::now(),
            places: Arc::new(Semaphore::new(MONITOR_CONNECTIONS_MAX)),
        });
        LocalSet::new().block_on(&runtime, async {
            tokio::select! {
                () = gone => {}
                () = accept(&listener, &sources) => {}
            }
        });
        if let Listener::Unix(listener, path) = listener {
            drop(listener);
            // A successor may have its own there. What is left is replaced by the next server.
            let _ = remove_abandoned(&path);
        }
    }
}

/// The port is for one server alone, but for the one that takes over from it.
fn bind(address: SocketAddr, beside: Beside) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(beside == Beside::Predecessor)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A socket that a server left behind is in the way of the next one; nothing else is touched.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_somebody) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// Never returns; cancel it to stop.
async fn accept(listener: &Listener, sources: &Rc<Sources>) {
    loop {
        // Closed never, since nobody does.
        let Ok(place) = Arc::clone(&sources.places).acquire_owned().await else {
            return;
        };
        let accepted = match listener {
            Listener::Tcp(listener) => listener
                .accept()
                .await
                .map(|(socket, _)| attend(socket, place, sources)),
            Listener::Unix(listener, _) => listener
                .accept()
                .await
                .map(|(socket, _)| attend(socket, place, sources)),
        };
        if accepted.is_err() {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
        }
    }
}

/// Answers a connection by a task of its own, which holds its place.
fn attend(
    socket: impl AsyncRead + AsyncWrite + Unpin + 'static,
    place: OwnedSemaphorePermit,
    sources: &Rc<Sources>,
) {
    let sources = Rc::clone(sources);
    spawn_local(async move {
        let _late = timeout(MONITOR_TIMEOUT, converse(socket, &sources)).await;
        drop(place);
    });
}

/// One request and its answer. What fails here concerns nobody but the peer.
async fn converse(mut socket: impl AsyncRead + AsyncWrite + Unpin, sources: &Sources) {
    let mut input = Vec::with_capacity(HEAD_BYTES);
    let mut scan = HeadScanner::default();
    let answer = loop {
        match scan.advance(&input) {
            Err(refusal) => break answer_refusal(refusal),
            Ok(HeadProgress::Complete) => break answer_head(&scan, &input, sources),
            Ok(HeadProgress::Partial) => {}
        }
        let room = (MONITOR_HEAD_BYTES_MAX + 1 - input.len().min(MONITOR_HEAD_BYTES_MAX)) as u64;
        match (&mut socket).take(room).read_buf(&mut input).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    };
    if socket.write_all(&answer).await.is_ok() {
        let _ = socket.shutdown().await;
    }
}

fn answer_head(scan: &HeadScanner, input: &[u8], sources: &Sources) -> Vec<u8> {
    match scan.parse(input) {
        Err(refusal) => answer_refusal(refusal),
        Ok(request) => answer(&request, sources),
    }
}

fn answer_refusal(refusal: HttpError) -> Vec<u8> {
    written(refusal.status, &format!("{refusal}\n"), Method::Unknown)
}

fn answer(request: &RequestHead<'_>, sources: &Sources) -> Vec<u8> {
    let method = request.method;
    if !matches!(method, Method::Get | Method::Head) {
        return written(Status::MethodNotAllowed, "only GET and HEAD\n", method);
    }
    let HttpTarget::Path { path, .. } = &request.target else {
        return written(Status::BadRequest, "the target is no path\n", method);
    };
    match path.bytes() {
        b"metrics" => {
            let text = metrics::text(&sources.board, sources.shutdown.phase(), sources.started);
            written(Status::Ok, &text, method)
        }
        b"health" | b"ready" => match sources.shutdown.phase() {
            ShutdownPhase::Running => written(Status::Ok, "ok\n", method),
            ShutdownPhase::Retiring | ShutdownPhase::Draining | ShutdownPhase::Now => {
                written(Status::ServiceUnavailable, "stopping\n", method)
            }
        },
        _ => written(
            Status::NotFound,
            "there are /metrics, /health and /ready\n",
            method,
        ),
    }
}

/// What most heads fit into.
const HEAD_BYTES: usize = 1024;

/// The type of the text format, version 0.0.4; the others are plain text as well.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";

fn written(status: Status, body: &str, method: Method) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 256);
    for part in [
        "HTTP/1.1 ",
        status.line(),
        "\r\nConnection: close\r\nCache-Control: no-store\r\nContent-Type: ",
        MEDIA,
        "\r\nDate: ",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(&date_bytes(SystemTime::now().into()));
    out.extend_from_slice(b"\r\nContent-Length: ");
    push_decimal(&mut out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    if method != Method::Head {
        out.extend_from_slice(body.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_two_kinds() {
        let address = |text: &str| text.parse::<StatusAddress>();
        let tcp = SocketAddr::from(([127, 0, 0, 1], 9090));
        assert_eq!(address("127.0.0.1:9090"), Ok(StatusAddress::Tcp(tcp)));
        assert_eq!(
            address("unix:/run/u"),
            Ok(StatusAddress::Unix("/run/u".into()))
        );
        for wrong in ["", "unix:", "9090", "localhost:9090", "/run/u"] {
            let error = address(wrong).unwrap_err();
            assert!(error.contains("unix:PATH"), "{error}");
        }
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        remove_abandoned(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        remove_abandoned(&path).unwrap();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let taken = remove_abandoned(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        remove_abandoned(&path).unwrap();
        assert!(!path.exists());
    }
}
