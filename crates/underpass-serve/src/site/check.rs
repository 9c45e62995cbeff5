//! Finds mistakes in sites before they are served.

use std::time::SystemTime;

use underpass_http::path::SitePath;

use crate::error::Error;
use crate::options::SiteOptions;
use crate::rules::{TryRule, UrlPath};
use crate::site::file::Resolved;
use crate::site::resolve::{SiteView, find};
use crate::site::sites::{ServedSite, ServedSites};

/// Returns all mistakes in these sites.
pub(crate) fn check(options: &[SiteOptions]) -> Vec<Error> {
    let mut wrong = Vec::new();
    for site in options {
        match ServedSite::open(site) {
            Ok(open) => wrong.extend(missing_pages(&open, site)),
            Err(error) => wrong.push(error),
        }
    }
    if wrong.is_empty() {
        wrong.extend(ServedSites::open(options).err());
    }
    wrong
}

/// Returns an error for each configured page that does not exist.
fn missing_pages(site: &ServedSite, options: &SiteOptions) -> Vec<Error> {
    let pages = options.fallback.iter().chain(options.error_pages.values());
    let pages = pages.map(UrlPath::path);
    let pages = pages.chain(options.tries.iter().filter_map(TryRule::last_page));
    let view = SiteView {
        site,
        permits: None,
        now: SystemTime::now(),
    };
    let missing = pages.filter(|page| {
        let found = find(view, (*page).clone());
        !matches!(found, Resolved::File(_))
    });
    let told = |page: &SitePath| Error::Site {
        root: options.root.clone(),
        what: format!("the page /{page:?} does not exist"),
    };
    missing.map(told).collect()
}
