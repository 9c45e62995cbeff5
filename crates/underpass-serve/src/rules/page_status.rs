//! Statuses that can have a page.

use serde::Deserialize;
use underpass_http::status::Status;

/// A status that can have a page.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub struct PageStatus(Status);

/// The error statuses of sites. Invalid requests do not belong to a site.
const PAGES: [Status; 11] = [
    Status::Unauthorized,
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
    /// A description, if the status never has a page.
    pub fn parse(status: &str) -> Result<PageStatus, String> {
        let code = status.parse().unwrap_or(0);
        match PAGES.into_iter().find(|page| page.code() == code) {
            Some(page) => Ok(PageStatus(page)),
            None => {
                let all = PAGES.map(|page| page.code().to_string());
                Err(format!(
                    "{status:?} cannot have a page; expected one of {}",
                    all.join(", ")
                ))
            }
        }
    }

    pub(crate) fn status(self) -> Status {
        self.0
    }
}
