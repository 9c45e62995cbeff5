//! What HTTP's documents define, apart from requests and answers: statuses, dates, tags, codings,
//! types.

pub(crate) mod base64;
pub(crate) mod calendar;
pub(crate) mod coding;
pub(crate) mod date;
pub(crate) mod decimal;
pub(crate) mod digest;
pub(crate) mod disposition;
pub(crate) mod status;
pub(crate) mod structured;
pub(crate) mod validator;
