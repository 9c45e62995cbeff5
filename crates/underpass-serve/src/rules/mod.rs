//! The rules of a site's configuration, each compiled by itself.
//!
//! ```text
//!  path ─► redirect? ─► rewrite ─► hidden? ─► what is there ─► label: type, fields, recipe of tags
//! ```
//!
//! Everything here is pure. The response fields that depend on a file's name alone (its **label**)
//! are formatted when the file is opened, so that patterns cost nothing while it is open.

pub(crate) mod compress;
pub(crate) mod cors;
mod etag_recipe;
pub(crate) mod exposure;
pub(crate) mod field;
pub(crate) mod header_rules;
mod host_name;
pub(crate) mod immutable;
pub(crate) mod mime;
mod page_status;
pub(crate) mod pattern;
pub(crate) mod redirect;
pub(crate) mod tries;
mod url_path;

pub use compress::MediaPattern;
pub use cors::{CorsOptions, CorsOrigin, FieldToken};
pub use etag_recipe::EtagRecipe;
pub use exposure::{Hidden, Symlinks};
pub use field::{FieldName, FieldValue};
pub use header_rules::{CacheRule, HeaderRule, SecurityOptions};
pub use host_name::HostName;
pub use mime::TypeOptions;
pub use page_status::PageStatus;
pub use pattern::Pattern;
pub use redirect::{Redirect, Rewrite};
pub use tries::{Candidate, TryRule};
pub use url_path::{FileName, UrlPath};

pub(crate) use compress::{Compressible, usual_bytes_min, usual_types};
pub(crate) use exposure::{Offer, Visibility};
pub(crate) use header_rules::ProducedFields;
pub(crate) use host_name::HostNames;
pub(crate) use redirect::{MatchedRedirect, RequestedPath, RewrittenPath};
pub(crate) use tries::SoughtPath;
pub(crate) use url_path::parse_path;

deserialize_by_parse! {
    Candidate, CorsOrigin, FieldName, FieldToken, FieldValue, FileName, HostName, MediaPattern,
    PageStatus, Pattern, UrlPath,
}
