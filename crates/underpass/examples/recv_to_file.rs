//! Receives a file from the next TCP connection, from socket to disk without a copy into user
//! space, and prints how the bytes travelled.
//!
//!     cargo run -p underpass --example recv_to_file -- 127.0.0.1:4000 big.iso
//!     nc -N 127.0.0.1 4000 < big.iso
//!
//! With `:0` as the port the kernel chooses one; the first line says which.

use std::error::Error;
use std::fs::File;
use std::net::TcpListener;

use underpass::drive::blocking::Driver;
use underpass::{Kernel, Sink, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: recv_to_file ADDRESS FILE".into());
    };
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    let (socket, _peer) = listener.accept()?;
    let file = File::create(path)?;

    // Everything until the peer ends. If the length is known, call `recv_file`.
    let kernel = Kernel::probe();
    let account = Driver::new(&kernel).run(&Source::whole(&socket)?, &Sink::new(&file)?)?;
    println!("{account}");
    Ok(())
}
