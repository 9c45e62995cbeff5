//! What a waiting side keeps between starts, so that its ticket stays valid: the secret, the key of
//! its certificate, and the port.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::Error;
use crate::secret::{SECRET_BYTES, Secret};

const FILE: &str = "ticket";

/// The kept state of one waiting transfer.
#[derive(Debug)]
pub struct KeptTicket {
    folder: PathBuf,
    /// The secret of the ticket.
    pub secret: Secret,
    /// The port that it was last reached at.
    pub port: Option<u16>,
}

impl KeptTicket {
    /// Returns the state of the transfer `what` in the user's folder `states`, new or from an
    /// earlier start.
    ///
    /// # Errors
    /// [`Error::Local`] where the folder cannot be made or the file cannot be read.
    pub fn open(states: &Path, what: &str) -> Result<KeptTicket, Error> {
        let name = blake3::hash(what.as_bytes()).to_hex();
        let folder = states.join(&name[..32]);
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| local("making the folder for the ticket", &error))?;
        match fs::read(folder.join(FILE)) {
            Ok(kept) => {
                let kept: Option<[u8; SECRET_BYTES + 2]> = kept.try_into().ok();
                let Some(kept) = kept else {
                    return KeptTicket::new(folder);
                };
                let mut secret = [0; SECRET_BYTES];
                secret.copy_from_slice(&kept[..SECRET_BYTES]);
                let port = u16::from_be_bytes([kept[SECRET_BYTES], kept[SECRET_BYTES + 1]]);
                Ok(KeptTicket {
                    folder,
                    secret: Secret::of(secret),
                    port: Some(port),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => KeptTicket::new(folder),
            Err(error) => Err(local("reading the kept ticket", &error)),
        }
    }

    fn new(folder: PathBuf) -> Result<KeptTicket, Error> {
        let secret = Secret::random().map_err(|errno| Error::Local {
            doing: "making a secret",
            errno,
        })?;
        Ok(KeptTicket {
            folder,
            secret,
            port: None,
        })
    }

    /// The folder for the key.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the secret and the port for the next start.
    ///
    /// # Errors
    /// [`Error::Local`]; the next start makes another ticket.
    pub(crate) fn keep(&self, port: u16) -> Result<(), Error> {
        let new = self.folder.join("ticket.new");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(self.secret.bytes())?;
                file.write_all(&port.to_be_bytes())
            });
        let kept = written.and_then(|()| fs::rename(&new, self.folder.join(FILE)));
        kept.map_err(|error| local("keeping the ticket", &error))
    }

    /// Forgets everything: the transfer is complete, and its ticket must not work again.
    pub fn forget(&self) {
        // What cannot be removed is replaced by the next transfer of the same files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn local(doing: &'static str, error: &io::Error) -> Error {
    Error::Local {
        doing,
        errno: Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_ticket_stays_until_its_transfer_is_complete() {
        let states = tempfile::tempdir().unwrap();
        let open = || KeptTicket::open(states.path(), "recv /srv").unwrap();
        let first = open();
        first.keep(4711).unwrap();
        let again = open();
        assert_eq!((&again.secret, again.port), (&first.secret, Some(4711)));
        let file = first.folder().join(FILE);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let other = KeptTicket::open(states.path(), "recv /other").unwrap();
        assert_ne!(other.secret, first.secret);
        first.forget();
        assert_ne!(open().secret, first.secret);
        fs::write(&file, "torn").unwrap();
        assert_eq!(open().port, None);
    }
}
