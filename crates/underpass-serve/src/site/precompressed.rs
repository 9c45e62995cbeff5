//! Copies of a file in a content coding that lie beside it: `app.js.br` for `app.js`.
//!
//! One that is older than the file was made of another state of it and is not used. What is beside
//! a file is looked for when somebody takes that coding, and remembered, missing or not, for as
//! long as the file is kept open; for each answer the copy is looked at anew, as the file is.

use std::rc::Rc;
use std::time::SystemTime;

use rustix::fs::fstat;

use crate::http::coding::Coding;
use crate::site::file::{File, Sibling};
use crate::site::resolve::{Found, open_file};
use crate::site::sites::Site;

/// The copy of `file` in a coding, if there is one of this state of it, at the time `now`.
pub(crate) fn sibling(site: &Site, file: &File, coding: Coding, now: SystemTime) -> Option<File> {
    let mut siblings = file.state.siblings.borrow_mut();
    let sibling = &mut siblings[coding.index()];
    sibling.look_again(now);
    if matches!(sibling, Sibling::Unknown) {
        *sibling = look_for(site, file, coding, now);
    }
    match sibling {
        Sibling::There(state) if state.changed >= file.state.changed => Some(File {
            path: file.path.with_suffix(coding.suffix()),
            state: Rc::clone(state),
            save_as: file.save_as.clone(),
        }),
        _ => None,
    }
}

impl Sibling {
    fn look_again(&mut self, now: SystemTime) {
        if let Sibling::There(state) = self {
            *self = match fstat(&state.descriptor) {
                Ok(stat) if stat.st_nlink > 0 => Sibling::There(state.looked_at_again(&stat, now)),
                _ => Sibling::Unknown,
            };
        }
    }
}

fn look_for(site: &Site, file: &File, coding: Coding, now: SystemTime) -> Sibling {
    let path = file.path.with_suffix(coding.suffix());
    let label = |_: &[u8]| site.rules.label(file.path.bytes(), Some(coding));
    match open_file(site, path, now, label) {
        Found::File(copy) => Sibling::There(copy.state),
        _ => Sibling::Missing,
    }
}
