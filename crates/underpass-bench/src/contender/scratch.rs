//! The temporary directory of a measurement, removed however the measurement ends.
//!
//! A second process, the caretaker, reads a pipe whose other end only the measurement holds. It is
//! in another process group, so that Ctrl-C doesn't reach it. When the measurement ends in any way,
//! including SIGKILL, the kernel closes that end, and the caretaker removes the directory. Nothing
//! else removes it, so each end of a measurement tests the rare ones.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::process;
use super::role::SubprocessRole;
use crate::error::{ErrorContext, Result};
use crate::machine::throttle;

/// Servers that are just ending may still write; removal is repeated this often.
const REMOVE_ATTEMPTS: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Scratch {
    directory: PathBuf,
    caretaker: Child,
    lifeline: ChildStdin,
}

impl Scratch {
    /// A fresh directory under `parent`, readable by servers that drop their privileges.
    pub(crate) fn create(parent: &Path) -> Result<Scratch> {
        let context = || format!("creating a directory in {}", parent.display());
        let directory = tempfile::Builder::new()
            .prefix("underpass-bench-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(parent)
            .context(context)?
            .keep();
        let role = SubprocessRole::TakeCare {
            directory: directory.clone(),
        };
        let mut caretaker = Command::new(process::own_program()?)
            .args(role.arguments())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context(|| "starting the caretaker".into())?;
        let lifeline = caretaker.stdin.take();
        let lifeline = lifeline
            .ok_or(rustix::io::Errno::PIPE)
            .context(|| "no lifeline".into())?;
        Ok(Scratch {
            directory,
            caretaker,
            lifeline,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::create_dir_all(&path).context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// Has the caretaker remove everything and waits for it.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.lifeline);
        self.caretaker
            .wait()
            .context(|| "waiting for the caretaker".into())
            .map(drop)
    }
}

/// The caretaker: waits for the end of the measurement, then removes its directory and the
/// control groups of that name.
pub(crate) fn take_care(directory: &Path) -> Result<()> {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let mut removed = fs::remove_dir_all(directory);
    for _ in 1..REMOVE_ATTEMPTS {
        if removed.is_ok() {
            break;
        }
        sleep(REMOVE_PAUSE);
        removed = fs::remove_dir_all(directory);
    }
    throttle::remove(directory);
    removed.context(|| format!("removing {}", directory.display()))
}
