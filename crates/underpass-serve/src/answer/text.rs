//! Responses that are a status, explained in a line of text or by a page of the site.

use rustix::io::Errno;

use crate::http::fields::push_field;
use crate::http::status::HttpError;

/// A status and the reason for it.
#[derive(Debug)]
pub(crate) struct TextResponse {
    pub(crate) error: HttpError,
    pub(crate) subject: Subject,
    /// Fields of this response alone, each with a line end before it.
    pub(crate) fields: Vec<u8>,
    /// The error of the operating system behind it, if there is one.
    pub(crate) cause: Option<Errno>,
}

/// What a text response is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Subject {
    Request,
    /// A file that exists, possibly in several codings.
    File,
}

impl TextResponse {
    /// `error` about the request.
    pub(crate) fn new(error: HttpError) -> TextResponse {
        TextResponse {
            error,
            subject: Subject::Request,
            fields: Vec::new(),
            cause: None,
        }
    }

    /// The same with one field more.
    pub(crate) fn with_field(self, name: &str, value: &[u8]) -> TextResponse {
        let mut fields = self.fields;
        push_field(&mut fields, name, value);
        TextResponse { fields, ..self }
    }

    /// The same about a file.
    pub(crate) fn about_file(self) -> TextResponse {
        let subject = Subject::File;
        TextResponse { subject, ..self }
    }

    /// An error that the operating system caused.
    pub(crate) fn caused(error: HttpError, cause: Errno) -> TextResponse {
        TextResponse {
            cause: Some(cause),
            ..TextResponse::new(error)
        }
    }
}
