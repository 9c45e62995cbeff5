//! The requests of a load.

use std::net::SocketAddr;

/// What to ask for, and how many bytes of body are owed for it.
#[derive(Debug, Clone)]
pub(crate) struct RequestTarget {
    pub(crate) request: Vec<u8>,
    pub(crate) body_bytes: u64,
    pub(crate) connection: ConnectionReuse,
}

/// What becomes of a connection after an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConnectionReuse {
    /// It is kept for the next request.
    #[default]
    KeepAlive,
    /// The server is asked to close it, and the next request has one of its own.
    PerRequest,
}

impl RequestTarget {
    /// A plain GET.
    pub(crate) fn get(
        address: SocketAddr,
        url_path: &str,
        body_bytes: u64,
        connection: ConnectionReuse,
    ) -> RequestTarget {
        let end = match connection {
            ConnectionReuse::KeepAlive => "",
            ConnectionReuse::PerRequest => "Connection: close\r\n",
        };
        let request = format!(
            "GET {url_path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: underpass-bench\r\n{end}\r\n"
        );
        RequestTarget {
            request: request.into_bytes(),
            body_bytes,
            connection,
        }
    }
}
