//! Unix listeners and the files of their sockets.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with,
};

use crate::error::Error;
use crate::limits::BACKLOG;

/// Listens on `path`, whose file has the permissions `mode` before connections are accepted.
pub(crate) fn listen(path: &Path, mode: u32) -> Result<(OwnedFd, SocketFile), Error> {
    let failed = |call| move |source: Errno| unusable(path, call, source.into());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(failed("socket"))?;
    let address = SocketAddrUnix::new(path).map_err(failed("the path"))?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            replace(path, || bind(&socket, &address).map_err(failed("bind")))?;
        }
        bound => bound.map_err(failed("bind"))?,
    }
    let file = SocketFile::of(path).map_err(|source| unusable(path, "stat", source))?;
    set_mode(path, mode)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen"))?;
    Ok((socket, file))
}

/// Sets the permissions of a socket's file. Fails if the process has switched to another user.
pub(crate) fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|source| unusable(path, "chmod", source))
}

/// Removes a stale socket at `path` and calls `bind`. The folder is locked meanwhile: of two
/// servers that find the same stale file, the later one would remove the socket of the first.
fn replace(path: &Path, bind: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let failed = |call| move |source| unusable(path, call, source);
    let parent = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(parent, flags, Mode::empty())
        .map_err(|errno| failed("open its folder")(errno.into()))?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)
        .map_err(|errno| failed("lock its folder")(errno.into()))?;
    let there = fs::symlink_metadata(path).map_err(failed("stat"))?;
    if !there.file_type().is_socket() {
        return Err(Error::NoSocketThere { path: path.into() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Ok(_) => return Err(Error::PathTaken { path: path.into() }),
        // A full queue belongs to a running server.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(Error::PathTaken { path: path.into() });
        }
        Err(error) => return Err(failed("connect")(error)),
    }
    fs::remove_file(path).map_err(failed("unlink"))?;
    bind()
}

fn unusable(path: &Path, call: &'static str, source: io::Error) -> Error {
    Error::Path {
        path: path.into(),
        call,
        source,
    }
}

/// Returns the path in the address of a Unix listener, empty if it has none.
pub(crate) fn path_of(address: SocketAddrAny) -> io::Result<PathBuf> {
    let address = SocketAddrUnix::try_from(address)?;
    let path = address.path_bytes().unwrap_or_default();
    Ok(OsStr::from_bytes(path).into())
}

/// Whether this process removes a socket's file when it closes the listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnlinkPolicy {
    /// Removes it.
    Unlink,
    /// Keeps it: another process uses it.
    Keep,
}

/// The file of a listening socket. It is removed when the last reference is dropped, unless it was
/// replaced before, or a successor uses it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    is_kept: AtomicBool,
}

impl SocketFile {
    pub(crate) fn of(path: &Path) -> io::Result<SocketFile> {
        let there = fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.into(),
            device: there.dev(),
            inode: there.ino(),
            is_kept: AtomicBool::new(false),
        })
    }

    /// Returns whether the path still leads to this socket. Assumes so if a process that has
    /// switched to another user cannot access the path.
    pub(crate) fn is_in_place(&self) -> bool {
        match fs::symlink_metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) == (self.device, self.inode),
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    pub(crate) fn set_unlink(&self, policy: UnlinkPolicy) {
        self.is_kept
            .store(policy == UnlinkPolicy::Keep, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    /// Removes the file on drop, since listeners are closed in several places: if another one
    /// cannot be opened, if a new configuration does not list it, and if the server stops.
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        if self.is_in_place() {
            // A file that cannot be removed is replaced by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn listen(path: &Path) -> Result<(OwnedFd, SocketFile), Error> {
        super::listen(path, 0o640)
    }

    #[test]
    fn the_file_has_its_mode_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_socket, file) = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_servers_file_is_replaced_and_a_living_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let living = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(Error::PathTaken { .. })));
        assert!(UnixStream::connect(&path).is_ok());
        drop(living);
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path), Err(Error::NoSocketThere { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_successors_file_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_socket, file) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
