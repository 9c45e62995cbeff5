//! Installs missing requirements of tests, if possible: Debian packages, and results of commands.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::needs;
use crate::workspace::Fallible;

/// Debian asks this program before a package starts its service; `101` means no.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str = "#!/bin/sh\n# Of `cargo xtask`, while it installs packages.\nexit 101\n";

/// Installs packages without starting their services, if this process may, and prints its actions.
pub(crate) fn install(missing: &BTreeSet<&str>) -> Fallible<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let missing = Vec::from_iter(missing.iter().copied());
    let names = missing.join(" ");
    if !needs::is_root() {
        println!("not root, so these packages are not installed: {names}");
        return Ok(());
    }
    println!("installing the packages {names}");
    let begun = Instant::now();
    without_services(Path::new(POLICY), || {
        apt(&["update", "--quiet"]);
        // An unavailable package must not prevent the installation of others.
        if !apt_install(&missing) {
            for package in missing {
                apt_install(&[package]);
            }
        }
    })?;
    println!("installed in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a shell command that provides something else that is missing, and prints it.
pub(crate) fn provide(command: &str) {
    println!("providing what tests need by\n{command}");
    println!("{}", needs::failure(command).unwrap_or("done".to_owned()));
}

/// Runs `work` while no package may start a service. An existing policy is kept.
fn without_services(policy: &Path, work: impl FnOnce()) -> Fallible<()> {
    // A policy of this program may be left from a run that was killed.
    let is_ours = fs::read_to_string(policy).map_or(!policy.exists(), |text| text == POLICY_TEXT);
    if is_ours {
        fs::write(policy, POLICY_TEXT)?;
        fs::set_permissions(policy, fs::Permissions::from_mode(0o755))?;
    }
    work();
    if is_ours {
        fs::remove_file(policy)?;
    }
    Ok(())
}

fn apt_install(packages: &[&str]) -> bool {
    let options = ["install", "--quiet", "--yes", "--no-install-recommends"];
    apt(&[options.as_slice(), packages].concat())
}

fn apt(arguments: &[&str]) -> bool {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("PATH", needs::search_path())
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            println!("apt-get could not be started: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_forbidden_while_packages_are_installed() {
        let name = format!("underpass-policy-{}", std::process::id());
        let policy = std::env::temp_dir().join(name);
        let text = || fs::read_to_string(&policy).ok();
        let work = || assert_eq!(text().as_deref(), Some(POLICY_TEXT));
        without_services(&policy, work).expect("a policy of ours");
        assert_eq!(text(), None);
        fs::write(&policy, POLICY_TEXT).expect("one left over");
        without_services(&policy, work).expect("a policy of ours");
        assert_eq!(text(), None);
        fs::write(&policy, "theirs").expect("a policy of theirs");
        without_services(&policy, || {}).expect("a policy of theirs");
        assert_eq!(text().as_deref(), Some("theirs"));
        fs::remove_file(&policy).expect("the policy");
    }
}
