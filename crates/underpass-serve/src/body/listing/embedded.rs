//! Styles, scripts and icons embedded in pages, and the policies that allow only these.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::body::listing::view::ListingView;

pub(super) const STYLE: &str = include_str!("page.css");
pub(super) const SCRIPT: &str = include_str!("page.js");
pub(super) const ICONS: &str = include_str!("icons.svg");

// Embedded only if the reader may add files to the folder.
pub(super) const UPLOAD_STYLE: &str = include_str!("upload.css");
pub(super) const UPLOAD_SCRIPT: &str = include_str!("upload.js");
pub(super) const UPLOAD_ICONS: &str = include_str!("upload.svg");

/// Header fields of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFields {
    pub(crate) referrer_policy: &'static str,
    /// Prevents loading anything, and running or applying anything but this program's own scripts
    /// and styles, whatever a name contains.
    pub(crate) content_security_policy: &'static str,
}

impl PageFields {
    /// Returns the fields of the page for a view.
    pub(crate) fn of(view: &ListingView) -> PageFields {
        static READ: LazyLock<String> = LazyLock::new(|| policy(&[STYLE], &[SCRIPT], ""));
        // The script sends requests to this server alone.
        static UPLOAD: LazyLock<String> = LazyLock::new(|| {
            let (styles, scripts) = ([STYLE, UPLOAD_STYLE], [SCRIPT, UPLOAD_SCRIPT]);
            policy(&styles, &scripts, "connect-src 'self'; ")
        });
        match view.changes {
            None => PageFields {
                referrer_policy: "no-referrer",
                content_security_policy: &READ,
            },
            // Under "no-referrer" browsers send "Origin: null" with a form.
            Some(_) => PageFields {
                referrer_policy: "same-origin",
                content_security_policy: &UPLOAD,
            },
        }
    }
}

fn policy(styles: &[&str], scripts: &[&str], more: &str) -> String {
    let hashes = |contents: &[&str]| {
        let hash = |content: &&str| {
            let hash = BASE64_STANDARD.encode(Sha256::digest(content));
            format!(" 'sha256-{hash}'")
        };
        contents.iter().map(hash).collect::<String>()
    };
    format!(
        "default-src 'none'; style-src{}; script-src{}; {more}form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
        hashes(styles),
        hashes(scripts)
    )
}
