//! A served folder: path resolution, file metadata, and the rules of the configuration.

pub(crate) mod access_check;
pub(crate) mod access_files;
pub(crate) mod beneath;
pub(crate) mod check;
pub(crate) mod digest_cache;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod resolve;
pub(crate) mod settle;
pub(crate) mod site_rules;
pub(crate) mod sites;
pub(crate) mod stamp;
pub(crate) mod upload_area;
pub(crate) mod upload_check;
pub(crate) mod watcher;
