//! Copies of a file in a content coding that lie beside it: `app.js.br` for `app.js`.
//!
//! One that is older than the file was made of another state of it and is not used. What is beside
//! a file is looked up when a client accepts that coding, and remembered, missing or not, for as
//! long as the file is kept open; for each answer the copy is looked at anew, as the file is.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::fstat;

use crate::http::coding::Coding;
use crate::site::file::{Precompressed, SiteFile};
use crate::site::resolve::{Resolved, open_file};
use crate::site::sites::ServedSite;

/// The copy of `file` in a coding, if there is one of this state of it, at the time `now`.
pub(crate) fn precompressed(
    site: &ServedSite,
    file: &SiteFile,
    coding: Coding,
    now: SystemTime,
) -> Option<SiteFile> {
    let mut copies = file.state.copies.borrow_mut();
    let copy = &mut copies[coding.index()];
    copy.look_again(now);
    if matches!(copy, Precompressed::Unknown) {
        *copy = look_for(site, file, coding, now);
    }
    match copy {
        Precompressed::There(state) if state.changed >= file.state.changed => Some(SiteFile {
            path: file.path.with_suffix(coding.suffix()),
            state: Rc::clone(state),
            save_as: file.save_as.clone(),
        }),
        _ => None,
    }
}

impl Precompressed {
    fn look_again(&mut self, now: SystemTime) {
        if let Precompressed::There(state) = self {
            *self = match fstat(&state.descriptor) {
                Ok(stat) if stat.st_nlink > 0 => {
                    Precompressed::There(state.looked_at_again(&stat, now))
                }
                _ => Precompressed::Unknown,
            };
        }
    }
}

fn look_for(site: &ServedSite, file: &SiteFile, coding: Coding, now: SystemTime) -> Precompressed {
    let path = file.path.with_suffix(coding.suffix());
    let label = |_: &[u8]| site.rules.label(file.path.bytes(), Some(coding));
    match open_file(site, path, now, label) {
        Resolved::File(copy) => Precompressed::There(copy.state),
        _ => Precompressed::Missing,
    }
}
