//! What HTTP's documents define, apart from requests and answers: statuses, fields, tags, codings.

pub(crate) mod calendar;
pub(crate) mod coding;
pub(crate) mod digest;
pub(crate) mod fields;
pub(crate) mod status;
pub(crate) mod validator;
