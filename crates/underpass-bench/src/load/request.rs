//! The requests of a load.

use std::net::SocketAddr;

/// A request, and how many bytes of body it is owed.
#[derive(Debug, Clone)]
pub(crate) struct RequestTarget {
    pub(crate) request: Vec<u8>,
    pub(crate) body_bytes: u64,
    pub(crate) reuse: ConnectionReuse,
}

/// Whether a connection is used again after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionReuse {
    /// It stays open for the next request.
    KeepAlive,
    /// The server is asked to close it, and the next request uses a new one.
    PerRequest,
}

impl RequestTarget {
    pub(crate) fn get(
        address: SocketAddr,
        url_path: &str,
        body_bytes: u64,
        reuse: ConnectionReuse,
    ) -> RequestTarget {
        let end = match reuse {
            ConnectionReuse::KeepAlive => "",
            ConnectionReuse::PerRequest => "Connection: close\r\n",
        };
        let request = format!(
            "GET {url_path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: underpass-bench\r\n{end}\r\n"
        );
        RequestTarget {
            request: request.into_bytes(),
            body_bytes,
            reuse,
        }
    }
}
