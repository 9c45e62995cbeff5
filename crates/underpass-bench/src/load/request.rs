//! The requests of a load.

use std::net::SocketAddr;

/// What to ask for, and how many bytes of body are owed for it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) request: Vec<u8>,
    pub(crate) body_bytes: u64,
    pub(crate) connection: Connection,
}

/// What becomes of a connection after an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Connection {
    /// It is kept for the next request.
    #[default]
    Kept,
    /// The server is asked to close it, and the next request has one of its own.
    Anew,
}

impl Target {
    /// A plain GET.
    pub(crate) fn get(
        address: SocketAddr,
        url_path: &str,
        body_bytes: u64,
        connection: Connection,
    ) -> Target {
        let end = match connection {
            Connection::Kept => "",
            Connection::Anew => "Connection: close\r\n",
        };
        let request = format!(
            "GET {url_path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: underpass-bench\r\n{end}\r\n"
        );
        Target {
            request: request.into_bytes(),
            body_bytes,
            connection,
        }
    }
}
