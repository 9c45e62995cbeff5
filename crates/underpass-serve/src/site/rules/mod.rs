//! The compiled rules of a site's configuration.
//!
//! ```text
//!  path ─► redirect? ─► rewrite ─► hidden? ─► what is there ─► label: type, fields, recipe of tags
//! ```
//!
//! Everything here is pure. The response fields that depend on a file's name alone (its **label**)
//! are formatted when the file is opened, so that patterns cost nothing while it is open.

mod compress;
mod cors;
mod etag_recipe;
mod exposure;
pub(crate) mod field;
mod header_rules;
mod host_name;
mod immutable;
pub(crate) mod mime;
mod page_status;
mod pattern;
mod redirect;
mod site_rules;
mod tries;
mod url_path;

pub use crate::access::grantee::Grantee;
pub use crate::access::rules::{AccessMethod, AccessRule, TreePattern};
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
pub(crate) use exposure::{Audience, Offer, Visibility};
pub(crate) use header_rules::ProducedFields;
pub(crate) use host_name::HostNames;
pub(crate) use redirect::{MatchedRedirect, RequestedPath, RewrittenPath};
pub(crate) use site_rules::{RepresentationHeaders, SiteRules};
pub(crate) use tries::SoughtPath;
pub(crate) use url_path::parse_path;

deserialize_by_parse! {
    Candidate, CorsOrigin, FieldName, FieldToken, FieldValue, FileName, HostName, MediaPattern,
    PageStatus, Pattern, UrlPath,
}
