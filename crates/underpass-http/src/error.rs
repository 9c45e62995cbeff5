//! Errors of a client: messages that cannot be written, and responses that are not valid.

use std::fmt;

/// The reason why a message is not written, or why a response is rejected. A connection with a
/// rejected response cannot be used again: the end of the response is uncertain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MessageError {
    /// To write: the method is not a token.
    Method,
    /// To write: the target is neither a path nor `*`, or contains a character that is not allowed.
    Target,
    /// To write: the host is malformed.
    Host,
    /// A field name is not a token, or is one that the writer writes itself.
    FieldName,
    /// A field value contains a control character, or begins or ends with white space.
    FieldValue,
    /// Not HTTP/1.0 or HTTP/1.1.
    Version,
    /// The status line is malformed.
    StatusLine,
    /// A line ends without CR.
    LineEnd,
    /// The head is longer than its limit.
    HeadTooLong,
    /// The head has too many fields.
    TooManyFields,
    /// There are too many interim responses.
    TooManyInterim,
    /// 101 Switching Protocols, which no request here asks for.
    Upgrade,
    /// A field that may occur once occurs twice.
    Repeated,
    /// `Content-Length` is not a number, or its lines differ.
    ContentLength,
    /// `Content-Length` and `Transfer-Encoding` exclude each other.
    ConflictingLengths,
    /// A transfer coding other than chunked, or one in HTTP/1.0.
    TransferCoding,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageError::Method => "the method is not a token",
            MessageError::Target => "the target is malformed",
            MessageError::Host => "the host is malformed",
            MessageError::FieldName => "a field name is malformed or reserved",
            MessageError::FieldValue => "a field value is malformed",
            MessageError::Version => "the response is not HTTP/1.0 or HTTP/1.1",
            MessageError::StatusLine => "the status line is malformed",
            MessageError::LineEnd => "a line of the response ends without CR",
            MessageError::HeadTooLong => "the head of the response is too long",
            MessageError::TooManyFields => "the head of the response has too many fields",
            MessageError::TooManyInterim => "too many interim responses",
            MessageError::Upgrade => "the server changes the protocol without being asked to",
            MessageError::Repeated => "a field of the response occurs twice",
            MessageError::ContentLength => "the response has no valid Content-Length",
            MessageError::ConflictingLengths => {
                "the response has both Content-Length and Transfer-Encoding"
            }
            MessageError::TransferCoding => "the response has an unsupported transfer coding",
        })
    }
}

impl std::error::Error for MessageError {}
