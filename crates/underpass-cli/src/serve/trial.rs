//! Sends the beginning of a served file over loopback: a plan cannot know what the file system
//! refuses.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use underpass::{Account, Kernel};

/// Fits into a socket's send buffer, so that no reader is needed.
pub(super) const TRIED_BYTES: u64 = 4096;

/// Directory entries examined to find a file.
const ENTRIES_MAX: usize = 64;

/// The result of a trial.
#[derive(Debug)]
pub(crate) struct ServedFileTrial {
    /// The name of the file.
    pub(crate) name: String,
    pub(crate) account: Account,
}

/// Tries the first file at the top of the folder. `None` if there is none or loopback fails.
pub(crate) fn trial(folder: &Path) -> Option<ServedFileTrial> {
    let entries = fs::read_dir(folder).ok()?.take(ENTRIES_MAX).flatten();
    let mut files = entries.filter(|entry| {
        let visible = !entry.file_name().as_encoded_bytes().starts_with(b".");
        visible && entry.file_type().is_ok_and(|kind| kind.is_file())
    });
    files.find_map(|entry| {
        let account = send(&entry.path()).ok()??;
        let name = entry.file_name().display().to_string();
        Some(ServedFileTrial { name, account })
    })
}

/// Returns `None` for an empty file.
fn send(path: &Path) -> io::Result<Option<Account>> {
    // The file may have been replaced by a FIFO.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() == 0 {
        return Ok(None);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let _peer = TcpStream::connect(listener.local_addr()?)?;
    let (socket, _) = listener.accept()?;
    let sent = underpass::send_file(
        &Kernel::probe(),
        &file,
        0,
        found.len().min(TRIED_BYTES),
        &socket,
    );
    Ok(sent.ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_has_something_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        assert!(trial(folder.path()).is_none());
        fs::create_dir(folder.path().join("folder")).unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::write(folder.path().join(".hidden"), "hidden").unwrap();
        assert!(trial(folder.path()).is_none());
        fs::write(folder.path().join("full"), vec![7; 10_000]).unwrap();
        let trial = trial(folder.path()).unwrap();
        assert_eq!(
            (trial.name.as_str(), trial.account.bytes()),
            ("full", TRIED_BYTES)
        );
    }
}
