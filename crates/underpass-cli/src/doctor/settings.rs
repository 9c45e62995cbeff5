//! Limits and settings that decide how much can be under way at once.

use std::fs;

use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use underpass::errno::Named;
use underpass::limits::PIPE_BYTES;

/// The limits of pipes, through which splice moves.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pipes {
    /// `fs.pipe-max-size`, bytes: the largest an unprivileged process may ask for.
    pub(super) max_bytes: Option<u64>,
    /// `fs.pipe-user-pages-soft`: beyond them a user's pipes can't grow; 0 means no limit.
    pub(super) user_pages_soft: Option<u64>,
    /// `fs.pipe-user-pages-hard`: beyond them a user's pipes have no room; 0 means no limit.
    pub(super) user_pages_hard: Option<u64>,
    /// What a new pipe has.
    pub(super) new_bytes: Option<u64>,
    /// What Underpass asks for.
    pub(super) asked_bytes: u64,
    /// What a new pipe has after asking.
    pub(super) granted_bytes: Option<u64>,
    /// Why it was not granted.
    pub(super) refusal: Option<String>,
}

impl Pipes {
    pub(super) fn ask() -> Self {
        let (new_bytes, granted_bytes, refusal) = match std::io::pipe() {
            Err(error) => (None, None, Some(super::meaning::of_error(&error))),
            Ok((_read, write)) => {
                let size = || fcntl_getpipe_size(&write).ok().map(|size| size as u64);
                let new_bytes = size();
                let asked = fcntl_setpipe_size(&write, PIPE_BYTES);
                let refusal = asked.err().map(|errno| Named(errno).to_string());
                (new_bytes, size(), refusal)
            }
        };
        Self {
            max_bytes: number("fs/pipe-max-size"),
            user_pages_soft: number("fs/pipe-user-pages-soft"),
            user_pages_hard: number("fs/pipe-user-pages-hard"),
            new_bytes,
            asked_bytes: PIPE_BYTES as u64,
            granted_bytes,
            refusal,
        }
    }
}

/// How many descriptors there may be. `None` is without limit, or unknown.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OpenFiles {
    /// Of this process, as it is.
    pub(super) soft: Option<u64>,
    /// Up to which the process itself may raise it.
    pub(super) hard: Option<u64>,
    /// `fs.nr_open`: up to which the hard limit may be raised.
    pub(super) nr_open: Option<u64>,
    /// `fs.file-max`: of all processes together.
    pub(super) file_max: Option<u64>,
}

impl OpenFiles {
    pub(super) fn ask() -> Self {
        let limit = getrlimit(Resource::Nofile);
        Self {
            soft: limit.current,
            hard: limit.maximum,
            nr_open: number("fs/nr_open"),
            file_max: number("fs/file-max"),
        }
    }
}

/// A kernel setting, as it is, and why it matters here.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    /// `None` where it can't be read.
    pub(super) value: Option<String>,
    pub(super) why: &'static str,
}

const TCP: [(&str, &str); 6] = [
    (
        "net.ipv4.tcp_wmem",
        "bytes a connection may have on its way (least, first, most): most ÷ round trip is the \
         fastest it can send",
    ),
    (
        "net.ipv4.tcp_rmem",
        "the same for receiving: what `recv` can take per round trip",
    ),
    (
        "net.ipv4.tcp_congestion_control",
        "how sending adapts to the path; bbr keeps long, lossy ones fuller than cubic",
    ),
    (
        "net.core.somaxconn",
        "connections that may wait for `serve` to accept them; more are dropped",
    ),
    (
        "net.ipv4.tcp_notsent_lowat",
        "unsent bytes a connection keeps in the kernel; 4294967295 is no limit: memory per slow \
         reader up to tcp_wmem's most",
    ),
    (
        "net.ipv4.ip_local_port_range",
        "ports for outgoing connections: so many at once to one address and port",
    ),
];

/// The settings of TCP that matter to moving bytes.
pub(super) fn tcp() -> Vec<Setting> {
    let setting = |(name, why): (&str, &'static str)| Setting {
        name: name.to_owned(),
        value: sysctl(&name.replace('.', "/")),
        why,
    };
    TCP.into_iter().map(setting).collect()
}

/// The numbers of a setting.
pub(super) fn numbers(settings: &[Setting], name: &str) -> Vec<u64> {
    let value = settings
        .iter()
        .find(|setting| setting.name == name)
        .and_then(|setting| setting.value.as_deref());
    let words = value.unwrap_or_default().split(' ');
    words.filter_map(|word| word.parse().ok()).collect()
}

fn number(path: &str) -> Option<u64> {
    sysctl(path)?.parse().ok()
}

/// In one line, blanks for tabs.
fn sysctl(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_their_numbers_found() {
        let settings = tcp();
        assert_eq!(numbers(&settings, "net.ipv4.ip_local_port_range").len(), 2);
        assert!(numbers(&settings, "net.ipv4.none").is_empty());
    }

    #[test]
    fn a_pipe_is_granted_something() {
        let pipes = Pipes::ask();
        assert!(pipes.granted_bytes >= pipes.new_bytes, "{pipes:?}");
        assert_eq!(
            pipes.refusal.is_none(),
            pipes.granted_bytes == Some(pipes.asked_bytes)
        );
    }
}
