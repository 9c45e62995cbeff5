//! The parts of HTTP that requests and responses share: statuses, fields, entity-tags, codings.

pub(crate) mod calendar;
pub(crate) mod coding;
pub(crate) mod digest;
pub(crate) mod fields;
pub(crate) mod status;
pub(crate) mod validator;
