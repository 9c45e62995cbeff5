//! Errors of a client: messages that cannot be written, and responses that are not valid.

/// The reason why a message is not written, or why a response is rejected. A connection with a
/// rejected response cannot be used again: the end of the response is uncertain.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// To write: the method is not a token.
    #[error("the method is not a token")]
    Method,
    /// To write: the target is neither a path nor `*`, or contains a character that is not allowed.
    #[error("the target is malformed")]
    Target,
    /// To write: the host is malformed.
    #[error("the host is malformed")]
    Host,
    /// A field name is not a token, or is one that the writer writes itself.
    #[error("a field name is malformed or reserved")]
    FieldName,
    /// A field value contains a control character, or begins or ends with white space.
    #[error("a field value is malformed")]
    FieldValue,
    /// Not HTTP/1.0 or HTTP/1.1.
    #[error("the response is not HTTP/1.0 or HTTP/1.1")]
    Version,
    /// The status line is malformed.
    #[error("the status line is malformed")]
    StatusLine,
    /// A line ends without CR.
    #[error("a line of the response ends without CR")]
    LineEnd,
    /// The head is longer than its limit.
    #[error("the head of the response is too long")]
    HeadTooLong,
    /// The head has too many fields.
    #[error("the head of the response has too many fields")]
    TooManyFields,
    /// There are too many interim responses.
    #[error("too many interim responses")]
    TooManyInterim,
    /// 101 Switching Protocols, which no request here asks for.
    #[error("the server changes the protocol without being asked to")]
    Upgrade,
    /// A field that may occur once occurs twice.
    #[error("a field of the response occurs twice")]
    Repeated,
    /// `Content-Length` is not a number, or its lines differ.
    #[error("the response has no valid Content-Length")]
    ContentLength,
    /// `Content-Length` and `Transfer-Encoding` exclude each other.
    #[error("the response has both Content-Length and Transfer-Encoding")]
    ConflictingLengths,
    /// A transfer coding other than chunked, or one in HTTP/1.0.
    #[error("the response has an unsupported transfer coding")]
    TransferCoding,
}
