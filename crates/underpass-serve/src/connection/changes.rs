//! The changes that the reader of a listing may make in its folder.

use rustix::fs::OFlags;
use underpass_http::path::SitePath;
use underpass_http::request::request_line::{Method, WriteMethod};

use crate::access::permits::Permits;
use crate::body::listing::view::FolderChanges;
use crate::rules::{Offer, Symlinks};
use crate::site::beneath::open;
use crate::site::sites::ServedSite;
use crate::site::upload_area::UploadArea;

/// Returns the changes that the requester may make in an existing folder; `None` if no files may be
/// added.
pub(crate) fn changes(
    site: &ServedSite,
    permits: Option<&Permits>,
    folder: &SitePath,
) -> Option<FolderChanges> {
    let (area, beneath) = UploadArea::of(&site.uploads, folder)?;
    let may = |method| {
        permits.is_none_or(|permits| {
            let method = Method::Write(method);
            let permits = Permits {
                method,
                ..permits.clone()
            };
            permits.allow(folder.bytes())
        })
    };
    let is_offered = beneath.is_ok() && may(WriteMethod::Put) && is_without_links(site, folder);
    is_offered.then(|| FolderChanges {
        overwrite: Offer::from(area.options.overwrite),
        delete: Offer::from(area.options.delete && may(WriteMethod::Delete)),
    })
}

/// Whether no part of a path is a symbolic link: uploads do not follow any.
fn is_without_links(site: &ServedSite, folder: &SitePath) -> bool {
    let path = match folder.bytes() {
        b"" => b".",
        path => path,
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    open(site.root(), path, flags, Symlinks::None).is_ok()
}
