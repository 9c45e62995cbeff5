//! A loopback of one's own, with a chosen TCP congestion control.
//!
//! A server inherits congestion control from the machine, and no peer has a setting for it. On a
//! loopback, `bbr` paces by timers what never meets a bottleneck, and the figures of one and the
//! same server then differ by a factor of two from round to round; `cubic`, the kernel's default,
//! gives what is published. A route can name another one than the machine's, and in a network
//! namespace of one's own nobody else notices.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::error::{Error, ErrorContext, Result};

/// Both are there from the start, and the more specific one is taken.
const LOCAL_ROUTES: [&str; 2] = ["127.0.0.1", "127.0.0.0/8"];

/// Becomes this program again, with one argument more, in a new network namespace. Returns only on
/// failure.
///
/// # Errors
/// It takes root, and the program `unshare`.
pub fn become_isolated(argument: &str) -> Result<()> {
    let program = std::env::current_exe().context(|| "finding this program".into())?;
    let error = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .arg(argument)
        .exec();
    Err(error).context(|| "becoming unshare".into())
}

/// Brings up the loopback of this namespace, such that its connections use `congestion_control`.
///
/// # Errors
/// The program `ip` is missing, or does not know the congestion control.
pub fn set_up_loopback(congestion_control: &str) -> Result<()> {
    ip("link set lo up")?;
    for route in LOCAL_ROUTES {
        ip(&format!(
            "route replace local {route} dev lo table local proto kernel scope host \
             src 127.0.0.1 congctl {congestion_control}"
        ))?;
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .context(|| "running ip".into())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Setting(format!("ip {arguments}: {}", said.trim()))),
    }
}
