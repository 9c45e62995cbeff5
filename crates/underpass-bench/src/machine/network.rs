//! A separate loopback with a chosen TCP congestion control.
//!
//! A server inherits the congestion control of the machine, and no compared server has a setting
//! for it. On a loopback, `bbr` paces packets with timers although there is no bottleneck, and the
//! figures of the same server then differ by a factor of two from round to round; published figures
//! use `cubic`, the kernel's default. A route can have another congestion control than the machine,
//! and in a separate network namespace it affects no other program.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::error::{Error, ErrorContext, Result};

/// Both exist initially, and the kernel uses the more specific one.
const LOCAL_ROUTES: [&str; 2] = ["127.0.0.1", "127.0.0.0/8"];

/// Restarts this program with an additional argument in a new network namespace. Returns only on
/// failure.
///
/// # Errors
/// The process is not root, or the program `unshare` is missing.
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

/// Brings up the loopback of this namespace and has its connections use `congestion_control`.
///
/// # Errors
/// The program `ip` is missing, or the kernel lacks the congestion control.
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Setting(format!("ip {arguments}: {}", stderr.trim()))),
    }
}
