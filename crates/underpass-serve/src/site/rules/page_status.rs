//! Statuses that may have pages of their own.

use serde::Deserialize;

use crate::http::status::Status;

/// A status that may have a page of its own.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub struct PageStatus(Status);

/// Those a site answers with. Requests that cannot be read are for no site.
const PAGES: [Status; 10] = [
    Status::Forbidden,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::NotAcceptable,
    Status::PreconditionFailed,
    Status::RangeNotSatisfiable,
    Status::ExpectationFailed,
    Status::InternalServerError,
    Status::NotImplemented,
    Status::ServiceUnavailable,
];

impl PageStatus {
    /// Checks a status.
    ///
    /// # Errors
    /// One that never has a page, in words.
    pub fn parse(status: &str) -> Result<PageStatus, String> {
        let code = status.parse().unwrap_or(0);
        match PAGES.into_iter().find(|page| page.code() == code) {
            Some(page) => Ok(PageStatus(page)),
            None => {
                let all = PAGES.map(|page| page.code().to_string());
                Err(format!(
                    "{status:?} has no page; those that may: {}",
                    all.join(", ")
                ))
            }
        }
    }

    pub(super) fn status(self) -> Status {
        self.0
    }
}

impl TryFrom<String> for PageStatus {
    type Error = String;

    fn try_from(status: String) -> Result<PageStatus, String> {
        PageStatus::parse(&status)
    }
}
