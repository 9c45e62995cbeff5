//! Responses that consist of a status, explained by a line of text or a page of the site.

use rustix::io::Errno;
use underpass_http::fields::writer::push_field;
use underpass_http::status::HttpError;

/// A status and the reason for it.
#[derive(Debug)]
pub(crate) struct TextResponse {
    pub(crate) error: HttpError,
    pub(crate) subject: Subject,
    /// Additional fields of this response, each preceded by a line break.
    pub(crate) fields: Vec<u8>,
    /// More lines of the body.
    pub(crate) lines: Vec<String>,
    /// The operating system error that caused it, if any.
    pub(crate) cause: Option<Errno>,
}

/// The subject of a text response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Subject {
    Request,
    /// A file that exists, possibly in several codings.
    File,
}

impl TextResponse {
    /// Creates a response for `error`, with the request as its subject.
    pub(crate) fn new(error: HttpError) -> TextResponse {
        TextResponse {
            error,
            subject: Subject::Request,
            fields: Vec::new(),
            lines: Vec::new(),
            cause: None,
        }
    }

    /// Adds a field.
    pub(crate) fn with_field(self, name: &str, value: &[u8]) -> TextResponse {
        let mut fields = self.fields;
        push_field(&mut fields, name, value);
        TextResponse { fields, ..self }
    }

    /// Adds lines to the body.
    pub(crate) fn with_lines(mut self, lines: impl IntoIterator<Item = String>) -> TextResponse {
        self.lines.extend(lines);
        self
    }

    /// Sets the subject to a file.
    pub(crate) fn about_file(self) -> TextResponse {
        let subject = Subject::File;
        TextResponse { subject, ..self }
    }

    /// Creates a response for an error caused by the operating system.
    pub(crate) fn caused(error: HttpError, cause: Errno) -> TextResponse {
        TextResponse {
            cause: Some(cause),
            ..TextResponse::new(error)
        }
    }
}
