//! The status codes of responses that are written, and errors with a status and a reason.

use std::fmt;

/// Declares each status once: code and reason phrase.
macro_rules! statuses {
    ($($name:ident = $code:literal $phrase:literal,)*) => {
        /// A status of RFC 9110, section 15, and one of tus.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Status {
            $(
                #[doc = concat!($code, " ", $phrase)]
                $name = $code,
            )*
        }

        impl Status {
            /// Returns the three-digit code.
            pub fn code(self) -> u16 {
                self as u16
            }

            /// Returns the code and reason phrase for the status line.
            pub fn line(self) -> &'static str {
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
    SeeOther = 303 "See Other",
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
    ChecksumMismatch = 460 "Checksum Mismatch",
    InternalServerError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    ServiceUnavailable = 503 "Service Unavailable",
    VersionNotSupported = 505 "HTTP Version Not Supported",
    InsufficientStorage = 507 "Insufficient Storage",
}

/// A status and the reason for it. The connection is closed after an invalid request, because the
/// start of the next request is uncertain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpError {
    /// The status of the response.
    pub status: Status,
    /// The reason in the response body.
    pub why: &'static str,
}

impl HttpError {
    /// Creates an error.
    pub const fn new(status: Status, why: &'static str) -> HttpError {
        HttpError { status, why }
    }

    /// Creates a 400 with a reason.
    pub const fn bad(why: &'static str) -> HttpError {
        HttpError::new(Status::BadRequest, why)
    }
}

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
