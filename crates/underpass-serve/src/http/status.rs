//! The status codes this server uses, and the refusal of a request that deserves no better.

use std::fmt;

/// Declares the statuses once: code and reason phrase.
macro_rules! statuses {
    ($($name:ident = $code:literal $phrase:literal,)*) => {
        /// A status of RFC 9110, section 15.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub(crate) enum Status {
            $($name = $code,)*
        }

        impl Status {
            /// The three digits.
            pub(crate) fn code(self) -> u16 {
                self as u16
            }

            /// The code and the reason phrase, as they stand in a status line.
            pub(crate) fn line(self) -> &'static str {
                match self {
                    $(Status::$name => concat!($code, " ", $phrase),)*
                }
            }
        }
    };
}

statuses! {
    Ok = 200 "OK",
    Created = 201 "Created",
    NoContent = 204 "No Content",
    PartialContent = 206 "Partial Content",
    MovedPermanently = 301 "Moved Permanently",
    Found = 302 "Found",
    NotModified = 304 "Not Modified",
    TemporaryRedirect = 307 "Temporary Redirect",
    PermanentRedirect = 308 "Permanent Redirect",
    BadRequest = 400 "Bad Request",
    Unauthorized = 401 "Unauthorized",
    Forbidden = 403 "Forbidden",
    NotFound = 404 "Not Found",
    MethodNotAllowed = 405 "Method Not Allowed",
    NotAcceptable = 406 "Not Acceptable",
    RequestTimeout = 408 "Request Timeout",
    Conflict = 409 "Conflict",
    Gone = 410 "Gone",
    LengthRequired = 411 "Length Required",
    PreconditionFailed = 412 "Precondition Failed",
    ContentTooLarge = 413 "Content Too Large",
    UriTooLong = 414 "URI Too Long",
    UnsupportedMediaType = 415 "Unsupported Media Type",
    RangeNotSatisfiable = 416 "Range Not Satisfiable",
    ExpectationFailed = 417 "Expectation Failed",
    MisdirectedRequest = 421 "Misdirected Request",
    Locked = 423 "Locked",
    TooManyRequests = 429 "Too Many Requests",
    HeadTooLarge = 431 "Request Header Fields Too Large",
    InternalServerError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    ServiceUnavailable = 503 "Service Unavailable",
    VersionNotSupported = 505 "HTTP Version Not Supported",
    InsufficientStorage = 507 "Insufficient Storage",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_its_status_and_the_reason() {
        let error = HttpError::bad("no such thing");
        assert_eq!(error.to_string(), "400 Bad Request: no such thing");
    }
}
