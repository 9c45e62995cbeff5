//! A TCP proxy: the bytes of its clients and of the server pass through pipes inside the kernel,
//! and never through this process.
//!
//!     cargo run -p underpass --example proxy -- 127.0.0.1:4000 example.org:80
//!
//! With `:0` as the port the kernel chooses one; the first line says which.
//!
//! Half-closes are kept: a client may end its request and still read the response.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use underpass::{Kernel, relay_streams};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(server)) = (arguments.next(), arguments.next()) else {
        return Err("usage: proxy ADDRESS SERVER".into());
    };
    // One for all connections: it pools their pipes.
    let kernel = Arc::new(Kernel::probe());
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    for client in listener.incoming() {
        let (client, server, kernel) = (client?, server.clone(), Arc::clone(&kernel));
        std::thread::spawn(move || match TcpStream::connect(&server) {
            Ok(server) => {
                let (there, back) = relay_streams(&kernel, &client, &server);
                println!("there: {}; back: {}", told(there), told(back));
            }
            Err(error) => println!("{server}: {error}"),
        });
    }
    Ok(())
}

fn told(outcome: Result<underpass::Account, underpass::Error>) -> String {
    match outcome {
        Ok(account) => account.to_string(),
        Err(error) => error.to_string(),
    }
}
