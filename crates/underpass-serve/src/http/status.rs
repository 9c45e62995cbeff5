//! The status codes this server uses, and the refusal of a request that deserves no better.

use std::fmt;

/// A status of RFC 9110, section 15.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Status {
    Ok = 200,
    NoContent = 204,
    PartialContent = 206,
    MovedPermanently = 301,
    Found = 302,
    NotModified = 304,
    TemporaryRedirect = 307,
    PermanentRedirect = 308,
    BadRequest = 400,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    NotAcceptable = 406,
    RequestTimeout = 408,
    PreconditionFailed = 412,
    UriTooLong = 414,
    RangeNotSatisfiable = 416,
    ExpectationFailed = 417,
    MisdirectedRequest = 421,
    HeadTooLarge = 431,
    InternalServerError = 500,
    NotImplemented = 501,
    ServiceUnavailable = 503,
    VersionNotSupported = 505,
}

impl Status {
    /// The three digits.
    pub(crate) fn code(self) -> u16 {
        self as u16
    }

    /// The code and the reason phrase, as they stand in a status line.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::NoContent => "204 No Content",
            Status::PartialContent => "206 Partial Content",
            Status::MovedPermanently => "301 Moved Permanently",
            Status::Found => "302 Found",
            Status::NotModified => "304 Not Modified",
            Status::TemporaryRedirect => "307 Temporary Redirect",
            Status::PermanentRedirect => "308 Permanent Redirect",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::NotAcceptable => "406 Not Acceptable",
            Status::RequestTimeout => "408 Request Timeout",
            Status::PreconditionFailed => "412 Precondition Failed",
            Status::UriTooLong => "414 URI Too Long",
            Status::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Status::ExpectationFailed => "417 Expectation Failed",
            Status::MisdirectedRequest => "421 Misdirected Request",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::InternalServerError => "500 Internal Server Error",
            Status::NotImplemented => "501 Not Implemented",
            Status::ServiceUnavailable => "503 Service Unavailable",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// A status and the reason for it. After an invalid request the connection is closed, because it is
/// uncertain where the next request begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HttpError {
    pub(crate) status: Status,
    /// The reason, as it stands in the response.
    pub(crate) why: &'static str,
}

impl HttpError {
    pub(crate) const fn new(status: Status, why: &'static str) -> HttpError {
        HttpError { status, why }
    }

    /// 400 and the reason.
    pub(crate) const fn bad(why: &'static str) -> HttpError {
        HttpError::new(Status::BadRequest, why)
    }
}

/// The bound of bodies that are produced or hashed at once is reached.
pub(crate) const BUSY: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "too many responses of this kind are in progress; try again later",
);

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.line(), self.why)
    }
}
