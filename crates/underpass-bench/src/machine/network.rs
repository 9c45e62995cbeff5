//! A separate loopback with a chosen TCP congestion control.
//!
//! No compared server has a setting for it. On a loopback, `bbr` paces packets with timers although
//! there is no bottleneck, and the figures of the same server differ by a factor of two; published
//! figures use `cubic`, the kernel's default. A route can have another congestion control than the
//! machine, for connections that it opens or accepts, and in a network namespace it affects no
//! other program.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Error, ErrorContext, Result};

/// The usual control of servers, and the kernel's default.
pub(crate) const USUAL_CONTROLS: [&str; 2] = ["bbr", "cubic"];

/// Both exist initially, and the kernel uses the more specific one.
const LOCAL_ROUTES: [&str; 2] = ["127.0.0.1", "127.0.0.0/8"];

/// Does something on a separate loopback under this congestion control, with the threads and
/// processes that it starts. Requires root, `ip` and `ss`.
pub(crate) fn under<T>(control: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let outside = File::open("/proc/thread-self/ns/net");
    let outside = outside.context(|| "opening the network namespace".into())?;
    let separated = unshare(CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
    separated.context(|| "creating a separate loopback".into())?;
    let done = set_up_loopback(control).and_then(|()| work());
    let returned = setns(outside, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
    returned.context(|| "leaving the separate loopback".into())?;
    done
}

fn set_up_loopback(control: &str) -> Result<()> {
    // For the check of each server; no socket exists yet.
    run("ss", "-Htn")?;
    run("ip", "link set lo up")?;
    for route in LOCAL_ROUTES {
        let arguments = format!(
            "route replace local {route} dev lo table local proto kernel scope host \
             src 127.0.0.1 congctl {control}"
        );
        let refused = |error| Error::Setting(format!("congestion control {control}: {error}"));
        run("ip", &arguments).map_err(refused)?;
    }
    Ok(())
}

/// The congestion control of new sockets of this thread.
pub(crate) fn machines_control() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

/// Checks that a server's side of a connection that is open, and on which it has sent something, is
/// under this congestion control.
pub(crate) fn check_accepted(server: SocketAddr, control: &str) -> Result<()> {
    let sockets = run("ss", &format!("-Htin src {server}"))?;
    match sockets.split_whitespace().any(|word| word == control) {
        true => Ok(()),
        false => Err(Error::Answer(format!(
            "its connections are not under {control}: {}",
            sockets.trim()
        ))),
    }
}

fn run(program: &str, arguments: &str) -> Result<String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.context(|| format!("running {program}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Error::Setting(format!("{program} {arguments}: {why}")))
        }
    }
}
