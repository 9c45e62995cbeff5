//! The fields of the IETF's resumable uploads (draft-ietf-httpbis-resumable-upload-15, and its
//! interop versions 3, 5, 6 and 8). Malformed fields are ignored, as the draft demands.

use sfv::{BareItem, Item, Parser};
use underpass_http::status::HttpError;

use crate::connection::upload_protocols::fields::HeadFields;

/// The media type of a body that is a part of a file.
pub(crate) const MEDIA_TYPE: &str = "application/partial-upload";
/// The interop version before which a completed request was told by `Upload-Incomplete`.
const COMPLETE_SINCE: u8 = 5;
/// The interop version since which a part has a media type.
const MEDIA_TYPE_SINCE: u8 = 6;
const KNOWN: [u8; 4] = [3, 5, 6, 8];

/// The version that a request speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Interop {
    /// It names none: that of the final text.
    Unnamed,
    Known(u8),
    Unknown,
}

/// The fields of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct UploadFields {
    pub(crate) interop: Interop,
    /// Whether the body ends the file.
    pub(crate) is_last: Option<bool>,
    pub(crate) length: Option<u64>,
    pub(crate) offset: Option<u64>,
}

impl Interop {
    /// Reads the version.
    ///
    /// # Errors
    /// 400 if it is there twice.
    pub(crate) fn of(fields: &HeadFields<'_>) -> Result<Interop, HttpError> {
        let Some(value) = fields.once("Upload-Draft-Interop-Version")? else {
            return Ok(Interop::Unnamed);
        };
        let known = KNOWN.into_iter().find(|known| {
            let text = std::str::from_utf8(value);
            text.is_ok_and(|text| text == known.to_string())
        });
        Ok(known.map_or(Interop::Unknown, Interop::Known))
    }

    /// The version that is named, if it is known.
    pub(crate) fn named(self) -> Option<u8> {
        match self {
            Interop::Known(version) => Some(version),
            Interop::Unnamed | Interop::Unknown => None,
        }
    }

    /// Whether a part of a file must have [`MEDIA_TYPE`].
    pub(crate) fn has_media_type(self) -> bool {
        self.named()
            .is_none_or(|version| version >= MEDIA_TYPE_SINCE)
    }

    /// Returns the field that tells whether a file is complete.
    pub(crate) fn completeness(self, is_complete: bool) -> (&'static str, &'static [u8]) {
        let is_old = self.named().is_some_and(|version| version < COMPLETE_SINCE);
        match (is_old, is_complete) {
            (false, true) => ("Upload-Complete", b"?1"),
            (false, false) => ("Upload-Complete", b"?0"),
            (true, true) => ("Upload-Incomplete", b"?0"),
            (true, false) => ("Upload-Incomplete", b"?1"),
        }
    }
}

impl UploadFields {
    /// Reads the fields.
    ///
    /// # Errors
    /// 400 if one is there twice.
    pub(crate) fn parse(fields: &HeadFields<'_>) -> Result<UploadFields, HttpError> {
        let complete = boolean(fields, "Upload-Complete")?;
        let incomplete = boolean(fields, "Upload-Incomplete")?;
        Ok(UploadFields {
            interop: Interop::of(fields)?,
            is_last: complete.or(incomplete.map(|incomplete| !incomplete)),
            length: bytes(fields, "Upload-Length")?,
            offset: bytes(fields, "Upload-Offset")?,
        })
    }

    /// Whether a request that brings a file creates an upload. One that brings all of it needs
    /// none unless its client can be told of the upload while the body comes.
    pub(crate) fn creates(&self) -> bool {
        match (self.is_last, self.interop) {
            (Some(false), _) | (Some(true), Interop::Known(_)) => true,
            (Some(true), Interop::Unnamed | Interop::Unknown) | (None, _) => false,
        }
    }

    /// Returns the length of the file that the fields and a body of `left` bytes at `offset`
    /// announce.
    ///
    /// # Errors
    /// 400 if they announce different ones, or another one than is `known`.
    pub(crate) fn file_length(
        &self,
        known: Option<u64>,
        (offset, left): (u64, Option<u64>),
    ) -> Result<Option<u64>, HttpError> {
        let by_body = left.filter(|_| self.is_last == Some(true));
        let by_body = match by_body.map(|left| offset.checked_add(left)) {
            Some(None) => return Err(INCONSISTENT),
            by_body => by_body.flatten(),
        };
        let mut announced = [known, self.length, by_body].into_iter().flatten();
        let length = announced.next();
        match announced.all(|other| Some(other) == length) {
            true => Ok(length),
            false => Err(INCONSISTENT),
        }
    }
}

/// The lengths that requests announced differ, or what they brought does.
pub(crate) const INCONSISTENT: HttpError = HttpError::bad(
    "the length of the file differs from the one announced; the upload is cancelled",
);

fn item(fields: &HeadFields<'_>, name: &str) -> Result<Option<BareItem>, HttpError> {
    let value = fields.once(name)?;
    let item = value.map(|value| Parser::new(value).parse::<Item>());
    Ok(item.and_then(Result::ok).map(|item| item.bare_item))
}

fn boolean(fields: &HeadFields<'_>, name: &str) -> Result<Option<bool>, HttpError> {
    Ok(item(fields, name)?.and_then(|item| item.as_boolean()))
}

fn bytes(fields: &HeadFields<'_>, name: &str) -> Result<Option<u64>, HttpError> {
    let number = item(fields, name)?.and_then(|item| item.as_integer());
    Ok(number.and_then(|number| u64::try_from(i64::from(number)).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(fields: &str) -> UploadFields {
        let head = format!("PUT /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        UploadFields::parse(&HeadFields::of(head.as_bytes())).unwrap()
    }

    #[test]
    fn versions_tell_completeness_in_their_words() {
        let fields = parsed("Upload-Complete: ?0;a=1\r\nUpload-Length: 10\r\nUpload-Offset: 4");
        let expected = UploadFields {
            interop: Interop::Unnamed,
            is_last: Some(false),
            length: Some(10),
            offset: Some(4),
        };
        assert_eq!(fields, expected);
        for (fields, interop, is_last, creates) in [
            ("X: 1", Interop::Unnamed, None, false),
            ("Upload-Complete: ?1", Interop::Unnamed, Some(true), false),
            (
                "Upload-Draft-Interop-Version: 6\r\nUpload-Complete: ?1",
                Interop::Known(6),
                Some(true),
                true,
            ),
            (
                "Upload-Draft-Interop-Version: 3\r\nUpload-Incomplete: ?0",
                Interop::Known(3),
                Some(true),
                true,
            ),
            (
                "Upload-Draft-Interop-Version: 7\r\nUpload-Complete: ?1",
                Interop::Unknown,
                Some(true),
                false,
            ),
            (
                "Upload-Draft-Interop-Version: 99\r\nUpload-Complete: ?0",
                Interop::Unknown,
                Some(false),
                true,
            ),
            (
                "Upload-Draft-Interop-Version: six\r\nUpload-Complete: 1",
                Interop::Unknown,
                None,
                false,
            ),
        ] {
            let parsed = parsed(fields);
            assert_eq!(
                (parsed.interop, parsed.is_last),
                (interop, is_last),
                "{fields}"
            );
            assert_eq!(parsed.creates(), creates, "{fields}");
        }
        let old = Interop::Known(3);
        assert_eq!(old.completeness(true), ("Upload-Incomplete", &b"?0"[..]));
        assert!(!old.has_media_type() && Interop::Unnamed.has_media_type());
    }

    #[test]
    fn malformed_fields_are_ignored() {
        for bad in [
            "-1",
            "1.0",
            "\"1\"",
            "?1",
            "1, 2",
            "99999999999999999999",
            "abc",
            "",
        ] {
            let fields = parsed(&format!("Upload-Offset: {bad}\r\nUpload-Length: {bad}"));
            assert_eq!((fields.offset, fields.length), (None, None), "{bad}");
        }
        let head = b"PUT /a HTTP/1.1\r\nUpload-Offset: 1\r\nUpload-Offset: 1\r\n\r\n";
        assert!(UploadFields::parse(&HeadFields::of(head)).is_err());
    }

    #[test]
    fn all_announced_lengths_are_the_same() {
        let length = |fields: &str, known, at| parsed(fields).file_length(known, at);
        assert_eq!(
            length("Upload-Complete: ?1", None, (3, Some(4))),
            Ok(Some(7))
        );
        assert_eq!(length("Upload-Complete: ?0", None, (3, Some(4))), Ok(None));
        assert_eq!(length("Upload-Complete: ?1", None, (3, None)), Ok(None));
        assert_eq!(length("Upload-Length: 9", Some(9), (0, None)), Ok(Some(9)));
        let complete = "Upload-Complete: ?1\r\nUpload-Length: 9";
        assert_eq!(length(complete, None, (3, Some(4))), Err(INCONSISTENT));
        assert_eq!(
            length("Upload-Length: 9", Some(8), (0, None)),
            Err(INCONSISTENT)
        );
        let overflow = length("Upload-Complete: ?1", None, (u64::MAX, Some(1)));
        assert_eq!(overflow, Err(INCONSISTENT));
    }
}
