//! Finds out before an upload arrives why a folder cannot take files in.

use std::fs::{File, Metadata};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use rustix::fs::{Access, AtFlags, FileType, accessat, fstatvfs, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use underpass_net::User;
use underpass_receive::UPLOADS_FOLDER;

use crate::error::Error;
use crate::options::ServerOptions;
use crate::options::uploads::UploadOptions;
use crate::site::sites::ServedSite;
use crate::site::upload_area::UploadArea;

/// Returns an error for each area of these options that cannot take a file in. The sites are opened
/// for that; one that cannot be is reported elsewhere.
pub(crate) fn mistakes(options: &ServerOptions) -> Vec<Error> {
    let open = options.sites.iter().filter_map(|site| {
        let is_used = !site.uploads.is_empty();
        is_used.then(|| ServedSite::open(site).ok()).flatten()
    });
    let told = |site: &ServedSite| {
        let told = obstacles(site, options.user.as_ref()).into_iter();
        let root = &site.rules.options.root;
        let told = told.map(|what| mistake(root, what));
        told.collect::<Vec<_>>()
    };
    open.flat_map(|site| told(&site)).collect()
}

fn mistake(root: &Path, what: String) -> Error {
    Error::Site {
        root: root.to_owned(),
        what,
    }
}

/// Returns what keeps the areas of a site from taking files in as `user`, or else as the user of
/// this process.
pub(crate) fn obstacles(site: &ServedSite, user: Option<&User>) -> Vec<String> {
    let root = &site.rules.options.root;
    let found = site.uploads.iter().flat_map(|area| {
        let place = AreaPlace {
            path: root.join(area.options.path.as_str()),
            folder: area.folder(),
            user,
        };
        let obstacles = [
            place.unwritable(),
            place.foreign(),
            place.small(&area.options),
        ];
        obstacles.into_iter().flatten()
    });
    found.map(|what| format!("upload: {what}")).collect()
}

/// Returns what is unusual about the areas of a site, which take files in nevertheless.
pub(crate) fn oddities(site: &ServedSite) -> Vec<String> {
    let root = &site.rules.options.root;
    let mounted = |area: &UploadArea| {
        let path = root.join(area.options.path.as_str());
        let device = |name| statat(area.folder(), name, AtFlags::SYMLINK_NOFOLLOW);
        let (own, partial) = (device(".").ok()?, device(UPLOADS_FOLDER).ok()?);
        (own.st_dev != partial.st_dev).then(|| {
            format!(
                "upload: {} is on another file system than its folder: each file is copied when \
                 it is complete; unmount it, and remove it",
                path.join(UPLOADS_FOLDER).display()
            )
        })
    };
    site.uploads.iter().filter_map(mounted).collect()
}

/// The folder of an area, and who will write there.
struct AreaPlace<'a> {
    path: PathBuf,
    folder: BorrowedFd<'a>,
    user: Option<&'a User>,
}

impl AreaPlace<'_> {
    /// Returns why the user may not make files there. The rights of another user are those of the
    /// permission bits.
    fn unwritable(&self) -> Option<String> {
        let path = self.path.display();
        let access = accessat(
            self.folder,
            ".",
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::empty(),
        );
        let is_denied = match (access, self.user) {
            (Err(Errno::ROFS), _) => {
                return Some(format!(
                    "{path} is on a file system that is mounted read-only; mount it for writing, \
                     or choose another folder by path"
                ));
            }
            (access, None) => access.is_err(),
            (_, Some(user)) => !user.may_write(&self.metadata()?),
        };
        let (who, name) = match self.user {
            Some(user) => (format!("the user {user}"), user.to_string()),
            None => ("this user".to_owned(), geteuid().as_raw().to_string()),
        };
        is_denied.then(|| {
            format!(
                "{who} may not write to {path}; `chown {name} {path}` allows it, or choose another \
                 folder by path"
            )
        })
    }

    fn metadata(&self) -> Option<Metadata> {
        let folder = self.folder.try_clone_to_owned().ok()?;
        File::from(folder).metadata().ok()
    }

    /// Returns why partial files cannot be where they belong.
    fn foreign(&self) -> Option<String> {
        let stat = statat(self.folder, UPLOADS_FOLDER, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let owner = match self.user {
            Some(user) => user.number().ok()?,
            None => geteuid().as_raw(),
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_own = is_folder && stat.st_uid == owner && stat.st_mode & 0o022 == 0;
        (!is_own).then(|| {
            format!(
                "{} is not a folder that belongs to the server's user alone; remove it while no \
                 server uses it, or give it to that user with mode 0700",
                self.path.join(UPLOADS_FOLDER).display()
            )
        })
    }

    /// Returns why there is no space.
    fn small(&self, options: &UploadOptions) -> Option<String> {
        let stat = fstatvfs(self.folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let (all, free) = (bytes(stat.f_blocks), bytes(stat.f_bavail));
        let (path, keep) = (self.path.display(), ByteSize(options.keep_free));
        let state = match options.keep_free {
            keep if keep >= all => format!("has {} in all", ByteSize(all)),
            keep if keep >= free => format!("has {} free", ByteSize(free)),
            _ => return None,
        };
        Some(format!(
            "keep-free of {path} is {keep}, and its file system {state}: nothing can be uploaded; \
             lower keep-free, or make space"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::options::SiteOptions;

    fn options(folder: &Path, change: impl FnOnce(&mut UploadOptions)) -> ServerOptions {
        let mut upload = UploadOptions {
            keep_free: 0,
            ..UploadOptions::default()
        };
        change(&mut upload);
        ServerOptions {
            sites: vec![SiteOptions {
                uploads: vec![upload],
                ..SiteOptions::of(folder)
            }],
            ..ServerOptions::of(folder)
        }
    }

    fn told(options: &ServerOptions) -> String {
        let told: Vec<_> = mistakes(options).iter().map(Error::to_string).collect();
        told.join("\n")
    }

    #[test]
    fn what_prevents_uploads_is_told_with_its_place_and_its_cure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(told(&options(path, |_| {})), "");
        let huge = told(&options(path, |upload| upload.keep_free = 8 << 60));
        for word in ["keep-free of ", "8.0 EiB", " in all", "lower keep-free"] {
            assert!(huge.contains(word), "{word}: {huge}");
        }
        // The bits decide about another user, root or not.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut other = options(path, |_| {});
        other.user = Some("12345:12345".parse().unwrap());
        let denied = told(&other);
        for word in [
            "the user 12345:12345 may not write to ",
            "chown 12345:12345 ",
        ] {
            assert!(denied.contains(word), "{word}: {denied}");
        }
        let partial = path.join(UPLOADS_FOLDER);
        std::fs::write(&partial, "").unwrap();
        let file = told(&options(path, |_| {}));
        assert!(
            file.contains(UPLOADS_FOLDER) && file.contains("remove it"),
            "{file}"
        );
        std::fs::remove_file(&partial).unwrap();
        std::fs::create_dir(&partial).unwrap();
        std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(told(&options(path, |_| {})).contains("mode 0700"));
    }
}
