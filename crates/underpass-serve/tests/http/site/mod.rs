//! Files and folders of a site, and path resolution in it.

mod archive;
mod changes;
mod escape;
mod listing;
mod listing_configured;
mod lookup;
mod options;
