//! Checks whether the log can be reopened after a rotation.

use std::fs;
use std::path::Path;

use rustix::fs::{Access as Permission, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use underpass_net::User;

use super::options::Access;

/// Returns why the file cannot be reopened by `user`, or else this process, and what to do. `None`
/// if it can be, judging by the permission bits, and for root.
pub(crate) fn rotation_obstacle(access: &Access, user: Option<&User>) -> Option<String> {
    let Access::File(path) = access else {
        return None;
    };
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let may_write = |path: &Path| match user {
        Some(user) => fs::metadata(path).is_ok_and(|there| user.may_write(&there)),
        None => accessat(CWD, path, Permission::WRITE_OK, AtFlags::EACCESS).is_ok(),
    };
    if user.is_none() && geteuid().is_root() {
        return None;
    }
    let who = user.map_or_else(|| "this user".to_owned(), User::to_string);
    let (shown, folder_shown) = (path.display(), folder.display());
    if path.exists() && !may_write(path) {
        return Some(format!(
            "the access log {shown} cannot be reopened: {who} may not write it; change its owner \
             (chown) or its mode"
        ));
    }
    (!may_write(folder)).then(|| {
        format!(
            "the access log {shown} is not created anew after a rotation: {who} may not create \
             files in {folder_shown}; let the rotation create it (logrotate: create 0640 {who}), \
             or choose a folder that {who} may write"
        )
    })
}
