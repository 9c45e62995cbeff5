//! A file system behind FUSE.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use underpass_testkit::wait_until;

/// A mount that ends when it is dropped.
pub(crate) struct Mounted {
    at: PathBuf,
    processes: [Child; 2],
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(&self.at).status();
        for process in &mut self.processes {
            let _ended = process.kill();
            let _status = process.wait();
        }
    }
}

/// Mounts a folder by sshfs until the result is dropped. It has
/// another inode number for each name of a file.
pub(crate) fn by_sshfs(folder: &Path, at: &Path) -> Mounted {
    let (from_server, to_sshfs) = std::io::pipe().expect("a pipe");
    let (from_sshfs, to_server) = std::io::pipe().expect("a pipe");
    let mut server = Command::new("sftp-server");
    let server = server.stdin(from_sshfs).stdout(to_sshfs).spawn();
    let mut sshfs = Command::new("sshfs");
    sshfs.args(["-f", "-o", "passive", "-o", "cache=no"]);
    sshfs.arg(format!("x:{}", folder.display())).arg(at);
    let sshfs = sshfs.stdin(from_server).stdout(to_server).spawn();
    let [server, sshfs] = [server, sshfs].map(|started| started.expect("it starts"));
    let running = Mounted {
        at: at.to_owned(),
        processes: [server, sshfs],
    };
    let device = |path: &Path| fs::metadata(path).map(|there| there.dev()).ok();
    let outside = device(at.parent().expect("a folder above"));
    wait_until("sshfs is mounted", || device(at) != outside);
    running
}
