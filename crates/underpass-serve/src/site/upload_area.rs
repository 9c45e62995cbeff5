//! The folders of a site that take files in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use underpass_http::path::SitePath;
use underpass_receive::{Area, Error as ReceiveError, RelativePath, SweepSummary};

use crate::error::Error;
use crate::options::SiteOptions;
use crate::options::uploads::UploadOptions;

/// A folder of a site that takes files in.
#[derive(Debug)]
pub(crate) struct UploadArea {
    pub(crate) options: UploadOptions,
    pub(crate) area: Arc<Area>,
    /// Requests that bring files at this moment.
    receiving: Receiving,
}

/// A place among the requests that bring files.
#[derive(Debug)]
pub(crate) struct ReceivePermit(Receiving, Option<String>);

/// The number of requests that bring files, by client.
type Receiving = Arc<Mutex<HashMap<Option<String>, usize>>>;

impl Drop for ReceivePermit {
    fn drop(&mut self) {
        let mut receiving = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = receiving.entry(self.1.take()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl UploadArea {
    /// Opens the folders, the longest paths first.
    pub(crate) fn open(
        options: &SiteOptions,
        root: BorrowedFd<'_>,
    ) -> Result<Vec<UploadArea>, Error> {
        contradiction(options)?;
        let mut areas = Vec::new();
        for upload in &options.uploads {
            let path = upload.path.as_str();
            let area = Area::open(root, upload.path.0.as_ref()).map_err(|error| Error::Site {
                root: options.root.clone(),
                what: match error {
                    ReceiveError::NotFound => format!(
                        "upload: the folder {} does not exist; make it, or change path",
                        options.root.join(path).display()
                    ),
                    error => format!("upload: the folder /{path}: {error}"),
                },
            })?;
            areas.push(UploadArea {
                options: upload.clone(),
                area: Arc::new(area),
                receiving: Arc::default(),
            });
        }
        areas.sort_by_key(|area| std::cmp::Reverse(area.options.path.as_str().len()));
        Ok(areas)
    }

    /// Returns the path of something in the folder, relative to it. `Some(None)` is the folder.
    fn beneath(&self, path: &[u8]) -> Option<Result<Option<RelativePath>, ReceiveError>> {
        let folder = self.options.path.as_str().as_bytes();
        let rest = match (folder, path.strip_prefix(folder)?) {
            (b"", rest) => rest,
            (_, []) => &[],
            (_, [b'/', rest @ ..]) => rest,
            _ => return None,
        };
        Some(match rest {
            [] => Ok(None),
            rest => RelativePath::parse(rest).map(Some),
        })
    }

    /// The first of `areas` that `path` is in, and the path relative to it.
    pub(crate) fn of<'a>(
        areas: &'a [UploadArea],
        path: &SitePath,
    ) -> Option<(&'a UploadArea, Result<Option<RelativePath>, ReceiveError>)> {
        areas
            .iter()
            .find_map(|area| Some((area, area.beneath(path.bytes())?)))
    }

    /// The path of the site that a path of the folder is.
    pub(crate) fn site_path(&self, target: &RelativePath) -> SitePath {
        match self.options.path.as_str() {
            "" => SitePath::of_file(target.as_str()),
            folder => SitePath::of_file(&format!("{folder}/{}", target.as_str())),
        }
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.area.root()
    }

    /// A place among the requests that bring files, if one is free. One client has at most half of
    /// them, so that it does not keep all others out.
    pub(crate) fn permit(&self, client: Option<String>) -> Option<ReceivePermit> {
        let mut receiving = self
            .receiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (all, most) = (receiving.values().sum::<usize>(), self.options.at_once_max);
        let of_client = receiving.get(&client).copied().unwrap_or(0);
        if all >= most || of_client >= most.div_ceil(2) {
            return None;
        }
        receiving.insert(client.clone(), of_client + 1);
        Some(ReceivePermit(Arc::clone(&self.receiving), client))
    }

    /// Removes expired uploads and what is left of others.
    pub(crate) fn sweep(&self) {
        let path = self.options.path.as_str();
        match self.area.sweep(SystemTime::now()) {
            Ok(SweepSummary { kept, removed }) if removed > 0 => {
                tracing::info!("uploads in /{path}: {removed} removed, {kept} unfinished");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("uploads in /{path}: {error}"),
        }
    }
}

/// Returns an error for options that contradict themselves or each other.
fn contradiction(site: &SiteOptions) -> Result<(), Error> {
    for (number, upload) in site.uploads.iter().enumerate() {
        let path = upload.path.as_str();
        let what = if upload.at_once_max == 0 {
            "at-once-max is 0: nothing could be uploaded; raise it, or remove the table"
        } else if upload.unfinished_max == 0 {
            "unfinished-max is 0: no resumable upload could start, and the page makes them of \
             large files; raise it"
        } else if upload.expire_after.is_zero() {
            "expire-after is 0: resumable uploads would be lost at once; raise it, as \"24h\""
        } else if site.uploads[..number]
            .iter()
            .any(|it| it.path == upload.path)
        {
            "two [[site.upload]] tables have this path; remove one of them"
        } else {
            continue;
        };
        return Err(Error::Site {
            root: site.root.clone(),
            what: format!("upload: /{path}: {what}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::options::uploads::FolderPath;

    #[test]
    fn the_deepest_folder_that_a_path_is_in_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("in/deep")).unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let upload = |path: &str| UploadOptions {
            path: FolderPath::parse(path).unwrap(),
            ..UploadOptions::default()
        };
        let options = SiteOptions {
            uploads: vec![upload("/in"), upload("/in/deep/")],
            ..SiteOptions::of(folder.path())
        };
        let areas = UploadArea::open(&options, root.as_fd()).unwrap();
        let found = |path: &str| {
            let path = SitePath::parse(path.as_bytes()).unwrap();
            let (area, beneath) = UploadArea::of(&areas, &path)?;
            let beneath = beneath.map(|path| path.map(|path| path.as_str().to_owned()));
            Some((area.options.path.as_str().to_owned(), beneath))
        };
        let expected =
            |area: &str, path: Option<&str>| Some((area.to_owned(), Ok(path.map(str::to_owned))));
        assert_eq!(found("/in/a/b"), expected("in", Some("a/b")));
        assert_eq!(found("/in/deep/a"), expected("in/deep", Some("a")));
        assert_eq!(found("/in/"), expected("in", None));
        assert_eq!(found("/inner"), None);
        assert_eq!(found("/"), None);
        assert!(found("/in/.hidden").unwrap().1.is_err());
        let missing = SiteOptions {
            uploads: vec![upload("/missing")],
            ..SiteOptions::of(folder.path())
        };
        assert!(UploadArea::open(&missing, root.as_fd()).is_err());
    }

    #[test]
    fn a_place_is_free_again_when_it_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let options = SiteOptions {
            uploads: vec![UploadOptions {
                at_once_max: 2,
                ..UploadOptions::default()
            }],
            ..SiteOptions::of(folder.path())
        };
        let areas = UploadArea::open(&options, root.as_fd()).unwrap();
        let address = |last| Some(format!("127.0.0.{last}"));
        let first = areas[0].permit(address(1));
        assert!(first.is_some() && areas[0].permit(address(1)).is_none());
        let second = areas[0].permit(address(2));
        assert!(second.is_some() && areas[0].permit(address(3)).is_none());
        drop((first, second));
        assert!(areas[0].permit(address(3)).is_some());
        assert!(areas[0].receiving.lock().unwrap().is_empty());
    }

    #[test]
    fn limits_of_nothing_and_paths_given_twice_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        let site = |uploads: Vec<UploadOptions>| SiteOptions {
            uploads,
            ..SiteOptions::of(folder.path())
        };
        let refused = |change: fn(&mut UploadOptions)| {
            let mut upload = UploadOptions::default();
            change(&mut upload);
            contradiction(&site(vec![upload])).unwrap_err().to_string()
        };
        assert!(refused(|upload| upload.at_once_max = 0).contains("at-once-max is 0"));
        assert!(refused(|upload| upload.unfinished_max = 0).contains("unfinished-max is 0"));
        let zero = refused(|upload| upload.expire_after = std::time::Duration::ZERO);
        assert!(zero.contains("expire-after is 0"), "{zero}");
        let at = |path: &str| UploadOptions {
            path: FolderPath::parse(path).unwrap(),
            ..UploadOptions::default()
        };
        assert!(contradiction(&site(vec![at("/"), at("/in")])).is_ok());
        let twice = contradiction(&site(vec![at("/"), at("/in"), at("/in/")]));
        let twice = twice.unwrap_err().to_string();
        assert!(twice.contains("upload: /in: two "), "{twice}");
    }
}
