//! A protocol with the features of future ones: frames, long polls, bodies into files, a client.

use std::fs::File;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass::Piece;
use underpass_net::{
    Address, Connection, ConnectionError, Connector, FrameBuffer, Inherited, ListenAt,
    ListenerAccess, ListenerConfig, Protocol, ReadOutcome, Server, ServerConfig, ShutdownPhase,
    WakeHandle, WhileDraining, start,
};

/// The timeout after which a test has failed.
pub(crate) const HANG: Duration = underpass_testkit::WAIT_MAX;

/// A longer frame ends the connection.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;

/// A server with several services.
#[derive(Clone)]
pub(crate) struct Toy;

/// The service of one listener.
#[derive(Clone)]
pub(crate) enum Service {
    /// Responds to each frame with its uppercase. Receiving is cancelled every few milliseconds.
    Frames,
    /// Responds to each byte with the result of the wait after it.
    LongPoll(Polls),
    /// Stores each body in a file, and responds with the mechanism that moved it.
    Store(PathBuf),
    /// Forwards one frame to another server, and its response back.
    Forward(Address),
    /// Responds with the listener of the connection, a word, and the phase of the server.
    Hello(&'static str),
}

/// The events on the connections of long polls.
#[derive(Clone)]
pub(crate) struct Polls {
    /// The handles of the waiting polls.
    pub(crate) waiting: Arc<Mutex<Vec<WakeHandle>>>,
    /// The errors of failed waits.
    pub(crate) failed: Sender<String>,
    pub(crate) timeout: Duration,
}

/// An empty summary.
#[derive(Debug)]
pub(crate) struct Nothing;

impl AddAssign<&Nothing> for Nothing {
    fn add_assign(&mut self, _other: &Nothing) {}
}

impl Protocol for Toy {
    type Worker = ();
    type Service = Service;
    type Summary = Nothing;

    fn worker(&self) {}

    async fn serve_connection(_worker: Rc<()>, service: Service, mut connection: Connection) {
        let served = match service {
            Service::Frames => frames(&mut connection).await,
            Service::LongPoll(polls) => poll(&mut connection, &polls).await,
            Service::Store(folder) => store(&mut connection, folder).await,
            Service::Forward(to) => forward(&mut connection, &to).await,
            Service::Hello(word) => hello(&mut connection, word).await,
        };
        match served {
            Ok(()) => connection.close().await,
            Err(_) => connection.abort(),
        }
    }

    fn finish(_worker: &()) -> Nothing {
        Nothing
    }
}

async fn frames(connection: &mut Connection) -> Result<(), ConnectionError> {
    connection.start_idle_deadline();
    while let Some(length) = number::<4>(connection).await? {
        let mut frame = FrameBuffer::new(checked(length)?);
        connection.start_deadline(HANG);
        loop {
            let receive = connection.receive_frame(&mut frame, WhileDraining::Continues);
            if let Ok(received) = tokio::time::timeout(Duration::from_millis(2), receive).await {
                received?;
                break;
            }
        }
        let mut answer = frame.into_bytes();
        answer.make_ascii_uppercase();
        push_frame(connection, &answer);
        connection.flush().await?;
        connection.start_idle_deadline();
    }
    Ok(())
}

async fn poll(connection: &mut Connection, polls: &Polls) -> Result<(), ConnectionError> {
    connection.start_idle_deadline();
    loop {
        if connection.input().is_empty()
            && connection.fill(WhileDraining::Ends).await? == ReadOutcome::End
        {
            return Ok(());
        }
        connection.consume(1);
        let wake = connection.wake_handle();
        connection.start_deadline(polls.timeout);
        polls.waiting.lock().unwrap().push(wake);
        let answer = match connection.wait_for_wake(WhileDraining::Continues).await {
            Ok(()) => "woken\n",
            Err(ConnectionError::TimedOut) => "late\n",
            Err(error) => {
                polls.failed.send(error.to_string()).unwrap();
                return Err(error);
            }
        };
        connection.outbox().push(Piece::Bytes(answer.into()));
        connection.flush().await?;
        connection.start_idle_deadline();
    }
}

async fn store(connection: &mut Connection, folder: PathBuf) -> Result<(), ConnectionError> {
    let mut bodies = 0;
    connection.start_idle_deadline();
    while let Some(length) = number::<8>(connection).await? {
        bodies += 1;
        let file = File::create(folder.join(bodies.to_string())).unwrap();
        let mut body = connection.file_receiver(&file, 0, length)?;
        connection
            .receive_file(&mut body, WhileDraining::Continues)
            .await?;
        let answer = format!("{}\n", body.into_account());
        connection.outbox().push(Piece::Bytes(answer.into()));
        connection.flush().await?;
        connection.start_idle_deadline();
    }
    Ok(())
}

async fn forward(connection: &mut Connection, to: &Address) -> Result<(), ConnectionError> {
    let connector = Connector::of(connection);
    connection.start_deadline(HANG);
    let Some(length) = number::<4>(connection).await? else {
        return Ok(());
    };
    let mut frame = FrameBuffer::new(checked(length)?);
    connection
        .receive_frame(&mut frame, WhileDraining::Continues)
        .await?;
    let mut other = connector.connect(to, HANG).await?;
    let answer = ask(&mut other, &frame.into_bytes()).await?;
    push_frame(connection, &answer);
    connection.flush().await
}

async fn hello(connection: &mut Connection, word: &str) -> Result<(), ConnectionError> {
    let listener = connection.listener().unwrap();
    let phase = match connection.server_phase() {
        ShutdownPhase::Running => "running",
        _ => "stopping",
    };
    let text = format!("{} {word} {phase}\n", listener.at());
    connection.outbox().push(Piece::Bytes(text.into()));
    connection.flush().await
}

/// Sends a frame on a connection that this process has opened, and receives the response.
pub(crate) async fn ask(
    connection: &mut Connection,
    frame: &[u8],
) -> Result<Vec<u8>, ConnectionError> {
    push_frame(connection, frame);
    connection.flush().await?;
    connection.start_deadline(HANG);
    let length = number::<4>(connection).await?;
    let mut answer = FrameBuffer::new(checked(length.ok_or(ConnectionError::PeerGone)?)?);
    connection
        .receive_frame(&mut answer, WhileDraining::Continues)
        .await?;
    Ok(answer.into_bytes())
}

fn push_frame(connection: &mut Connection, frame: &[u8]) {
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    let piece = Piece::Bytes([&length[..], frame].concat());
    connection.outbox().push(piece);
}

/// Receives a number of `N` bytes; none if the peer has ended before it.
async fn number<const N: usize>(
    connection: &mut Connection,
) -> Result<Option<u64>, ConnectionError> {
    loop {
        if let Some(bytes) = connection.input().first_chunk::<N>() {
            let number = bytes
                .iter()
                .fold(0, |number, &byte| number << 8 | u64::from(byte));
            connection.consume(N);
            return Ok(Some(number));
        }
        if connection.fill(WhileDraining::Ends).await? == ReadOutcome::End {
            return Ok(None);
        }
    }
}

fn checked(length: u64) -> Result<usize, ConnectionError> {
    let length = usize::try_from(length).ok();
    let length = length.filter(|&length| length <= FRAME_BYTES_MAX);
    length.ok_or(ConnectionError::InputFull)
}

/// Starts a server of these listeners, with one worker.
pub(crate) fn serve(
    listeners: Vec<ListenerConfig<Service>>,
    change: impl FnOnce(&mut ServerConfig<Toy>),
) -> (Server<Nothing>, ServerConfig<Toy>) {
    let mut config = ServerConfig {
        protocol: Toy,
        listeners,
        workers: 1,
        policy: underpass::Policy::default(),
        limits: underpass_net::ConnectionLimits::default(),
    };
    change(&mut config);
    (start(&config, Inherited::default()).unwrap(), config)
}

/// Returns a listener for clients on a port that the kernel chooses.
pub(crate) fn on_any_port(service: Service) -> ListenerConfig<Service> {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    ListenerConfig::new(any.into(), service)
}

/// Returns a listener for operators.
pub(crate) fn for_operators(at: ListenAt, service: Service) -> ListenerConfig<Service> {
    ListenerConfig {
        access: ListenerAccess::Operators { connections_max: 2 },
        ..ListenerConfig::new(at, service)
    }
}

/// Ends a server and waits for its workers.
pub(crate) fn stop(server: &Server<Nothing>) {
    server.shutdown().advance(ShutdownPhase::Now);
    server.join();
}
