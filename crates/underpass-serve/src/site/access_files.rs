//! Rereads the access files of sites when they change.

use std::sync::{Arc, Weak};
use std::thread;

use crate::error::{Error, start_thread};
use crate::limits::ACCESS_FILES_INTERVAL;
use crate::site::sites::ServedSites;

/// Checks the files regularly, on a thread that ends when the sites are dropped.
///
/// # Errors
/// [`Error::Thread`].
pub(crate) fn watch(sites: &Arc<ServedSites>) -> Result<(), Error> {
    let sites = Arc::downgrade(sites);
    let watch = move || {
        while refresh(&sites).is_some() {
            thread::sleep(ACCESS_FILES_INTERVAL);
        }
    };
    start_thread(
        "access",
        "start the thread that reads files of users",
        watch,
    )
}

/// Rereads changed files; `None` once the sites are dropped.
fn refresh(sites: &Weak<ServedSites>) -> Option<()> {
    let sites = sites.upgrade()?;
    for access in sites.all.iter().filter_map(|site| site.access.as_ref()) {
        for warning in access.refresh() {
            tracing::warn!("{warning}");
        }
    }
    Some(())
}
