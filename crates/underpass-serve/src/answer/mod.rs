//! Decides and writes responses.

pub(crate) mod decide;
pub(crate) mod multipart;
pub(crate) mod refusal;
pub(crate) mod text;
pub(crate) mod writer;
