//! Sends one file to every client, with sendfile on Tokio's event loop.
//!
//!     cargo run -p underpass --features tokio --example send_tokio -- 127.0.0.1:4000 big.iso
//!     nc 127.0.0.1 4000 > copy.iso
//!
//! With `:0` as the port the kernel chooses one; the first line says which.
//!
//! Files not in the page cache are read ahead on other threads: no client waits for the disk.

use std::error::Error;
use std::fs::File;
use std::sync::Arc;

use tokio::net::TcpListener;
use underpass::{Kernel, drive::tokio::FileSender};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: send_tokio ADDRESS FILE".into());
    };
    let listener = TcpListener::bind(address).await?;
    println!("{}", listener.local_addr()?);
    let kernel = Arc::new(Kernel::probe());
    loop {
        let (socket, peer) = listener.accept().await?;
        let (file, kernel) = (File::open(&path)?, Arc::clone(&kernel));
        let mut sender = FileSender::new(&file, 0, file.metadata()?.len())?;
        tokio::spawn(async move {
            match sender.run(&socket, &kernel).await {
                Ok(()) => println!("{peer}: {}", sender.account()),
                Err(error) => println!("{peer}: {error}"),
            }
        });
    }
}
