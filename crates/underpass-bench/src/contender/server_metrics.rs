//! The metrics of our own server, requested on a Unix socket.
//!
//! They are the same counts that any program can scrape: bench and server share the text format and
//! no library.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use underpass::Mechanism;

use crate::document::PayloadPath;
use crate::error::{Error, ErrorContext, Result};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests from the server at `socket` by which mechanisms it has sent bodies so far.
pub(crate) fn payload_paths(socket: &Path, contender: usize) -> Result<Vec<PayloadPath>> {
    let text = request(socket).context(|| format!("requesting metrics on {}", socket.display()))?;
    match text.split_once("\r\n\r\n") {
        Some((head, page)) if head.starts_with("HTTP/1.1 200 ") => Ok(read(page, contender)),
        _ => Err(Error::Answer("the server has no metrics".into())),
    }
}

fn request(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Parses a page of metrics, without mechanisms that made no calls.
fn read(page: &str, contender: usize) -> Vec<PayloadPath> {
    let all = Mechanism::ALL.into_iter().map(|mechanism| {
        let of = |family: &str| sum(page, family, mechanism);
        PayloadPath {
            contender,
            mechanism: mechanism.name().to_owned(),
            bytes: of("underpass_body_bytes_total"),
            calls: of("underpass_body_calls_total"),
            refusals: of("underpass_refusals_total"),
        }
    });
    all.filter(|one| one.calls > 0).collect()
}

/// The sum of all samples of a family with this mechanism.
fn sum(page: &str, family: &str, mechanism: Mechanism) -> u64 {
    let label = format!("mechanism=\"{mechanism}\"");
    let samples = page.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(family)?.rsplit_once(' ')?;
        let is_its = labels.starts_with('{') && labels.contains(&label);
        is_its.then(|| value.parse().unwrap_or(0))
    });
    samples.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_that_did_something_are_read_off() {
        let page = "# HELP underpass_body_bytes_total Bytes.\n\
                    # TYPE underpass_body_bytes_total counter\n\
                    underpass_body_bytes_total{mechanism=\"sendfile\"} 7\n\
                    underpass_body_bytes_total{mechanism=\"splice\"} 0\n\
                    underpass_body_calls_total{mechanism=\"sendfile\"} 2\n\
                    underpass_refusals_total{mechanism=\"sendfile\",cause=\"EINVAL\"} 3\n\
                    underpass_refusals_total{mechanism=\"sendfile\",cause=\"EIO\"} 1\n";
        let reported = read(page, 5);
        let [one] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert_eq!((one.contender, one.mechanism.as_str()), (5, "sendfile"));
        assert_eq!((one.bytes, one.calls, one.refusals), (7, 2, 4));
        assert!(read("", 0).is_empty());
    }
}
