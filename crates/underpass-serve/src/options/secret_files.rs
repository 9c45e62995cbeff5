//! Files with secrets: their permissions, and whether they are served.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use underpass_net::User;

use crate::error::Error;
use crate::options::ServerOptions;

/// Warns of a file, described by `what`, that every user of the machine may read.
pub(crate) fn exposed(what: &str, file: &Path) -> Option<String> {
    let mode = fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        format!(
            "every user of this machine may read {what} {}; change its mode (chmod o-r)",
            file.display()
        )
    })
}

/// Returns an error for each file that the user of [`ServerOptions::user`] may not read: reloads
/// will fail. `hint` ends the message: another effect, and what to do.
pub(crate) fn unreadable<'f>(
    options: &ServerOptions,
    files: impl Iterator<Item = &'f PathBuf>,
    hint: &str,
) -> Vec<Error> {
    let Some(user) = &options.user else {
        return Vec::new();
    };
    let unreadable = files.filter(|path| !may_read(user, path));
    let error = |path: &PathBuf| Error::File {
        path: path.clone(),
        what: format!("{user} may not read it: every reload and upgrade will fail, and {hint}"),
    };
    unreadable.map(error).collect()
}

/// Whether a user may read a file: opens it if this process runs as that user, and otherwise checks
/// the permission bits of the file and of all its parent folders, through links too.
fn may_read(user: &User, path: &Path) -> bool {
    if user.number().ok() == Some(geteuid().as_raw()) {
        return File::open(path).is_ok();
    }
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let given = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let may_search = |folder: &Path| {
        let there = fs::metadata(folder);
        there.is_ok_and(|there| user.may_search(&there))
    };
    let mut folders = given.ancestors().skip(1).chain(real.ancestors().skip(1));
    let file = fs::metadata(path);
    folders.all(may_search) && file.is_ok_and(|there| user.may_read(&there))
}

/// Returns an error for the first file that is in a served folder: anyone who guesses its name
/// could read it. Folders are compared by device and inode, since mounts and links give them
/// several names.
pub(crate) fn served(
    options: &ServerOptions,
    what: &'static str,
    mut files: impl Iterator<Item = PathBuf>,
) -> Option<Error> {
    let id = |path: &Path| {
        let there = fs::metadata(path).ok()?;
        Some((there.dev(), there.ino()))
    };
    let roots = options.sites.iter().map(|site| &site.root);
    let roots: Vec<_> = roots.filter_map(|root| Some((root, id(root)?))).collect();
    files.find_map(|file| {
        let places = places(&file);
        let mut folders = places.iter().flat_map(|place| place.ancestors().skip(1));
        let root = folders.find_map(|folder| {
            let folder = id(folder)?;
            roots.iter().find(|(_, root)| *root == folder)
        });
        let root = root?.0.clone();
        Some(Error::SecretServed { what, file, root })
    })
}

/// Returns the paths of a file, existing or not, and of the links to it, in resolved folders.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut next = place(path);
    while let Some(here) = next.take().filter(|_| places.len() < LINKS_MAX) {
        if let (Ok(target), Some(folder)) = (fs::read_link(&here), here.parent()) {
            next = place(&folder.join(target));
        }
        places.push(here);
    }
    places
}

/// The kernel's limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

fn place(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut folders = path.ancestors().skip(1);
    folders.find_map(|folder| {
        let real = fs::canonicalize(folder).ok()?;
        Some(real.join(path.strip_prefix(folder).ok()?))
    })
}
