//! A sender and a receiver on Tokio, both interrupted repeatedly.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use underpass::Kernel;
use underpass::drive::tokio::{FileReceiver, FileSender, Turn};

type Failure = Box<dyn Error + Send + Sync>;

/// The size and maximum duration of a turn: most are dropped while they wait.
const TURN_BYTES: u64 = 100_000;
const TURN_TIME: Duration = Duration::from_micros(200);

pub fn send_and_receive(from: &Path, to: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let ours = TcpStream::connect(listener.local_addr()?).await?;
        let (theirs, _) = listener.accept().await?;
        let kernel = Arc::new(Kernel::probe());
        let len = from.metadata()?.len();
        let sending = tokio::spawn(send(Arc::clone(&kernel), from.to_owned(), len, ours));
        let received = receive(&kernel, to, len, theirs).await?;
        println!("sent {} bytes, received {received}", sending.await??);
        Ok(())
    })
}

async fn send(
    kernel: Arc<Kernel>,
    path: PathBuf,
    len: u64,
    socket: TcpStream,
) -> Result<u64, Failure> {
    let mut sender = FileSender::new(File::open(path)?, 0, len)?;
    loop {
        match timeout(TURN_TIME, sender.turn(&socket, &kernel, TURN_BYTES)).await {
            Ok(turn) => {
                if turn? == Turn::Empty {
                    return Ok(sender.account().bytes());
                }
            }
            Err(_dropped) => (),
        }
    }
}

async fn receive(
    kernel: &Kernel,
    path: &Path,
    len: u64,
    socket: TcpStream,
) -> Result<u64, Failure> {
    let (reads, _writes) = socket.into_split();
    let mut receiver = FileReceiver::new(File::create(path)?, 0, len)?;
    loop {
        match timeout(TURN_TIME, receiver.turn(&reads, kernel, TURN_BYTES)).await {
            Ok(turn) => {
                if turn? == Turn::Empty {
                    return Ok(receiver.account().bytes());
                }
            }
            Err(_dropped) => (),
        }
    }
}
