//! The fields of tus 1.0.0 (<https://tus.io/protocols/resumable-upload>).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use underpass_http::status::{HttpError, Status};
use underpass_receive::{Error as ReceiveFault, RelativePath, UploadId};

use crate::connection::upload_protocols::fields::{Algorithm, ExpectedDigest, HeadFields};
use crate::connection::upload_protocols::location::upload_of_url;

/// The only version.
pub(crate) const VERSION: &[u8] = b"1.0.0";
/// The media type of a body that is a part of a file.
pub(crate) const MEDIA_TYPE: &str = "application/offset+octet-stream";
/// The value of `Tus-Extension`.
pub(crate) const EXTENSIONS: &str = "creation,creation-with-upload,creation-defer-length,\
    termination,expiration,checksum,concatenation";
/// The value of `Tus-Checksum-Algorithm`.
pub(crate) const CHECKSUMS: &str = "sha1,sha256,sha512";
pub(crate) const OTHER_VERSION: HttpError = HttpError::new(
    Status::PreconditionFailed,
    "only version 1.0.0 of tus is supported; send Tus-Resumable: 1.0.0",
);

/// Parts that one file may be joined from.
const PARTS_MAX: usize = 256;

/// The fields of a request that creates an upload.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct CreationFields<'b> {
    /// The length of the file; `None` where it is announced later.
    pub(crate) length: Option<u64>,
    pub(crate) metadata: UploadMetadata<'b>,
    pub(crate) role: ConcatRole,
}

/// The use of an upload.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum ConcatRole {
    /// A file.
    Whole,
    /// A part of a file, which has no name.
    Partial,
    /// A file that is joined from parts.
    Final(Vec<UploadId>),
}

/// The fields of a request that continues an upload.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct AppendFields {
    pub(crate) offset: u64,
    /// The length of the file, where it was not known before.
    pub(crate) length: Option<u64>,
    pub(crate) checksum: Option<ExpectedDigest>,
}

/// The value of `Upload-Metadata`.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct UploadMetadata<'b> {
    /// As it was sent.
    pub(crate) text: &'b str,
    filename: Option<Vec<u8>>,
    relative_path: Option<Vec<u8>>,
}

/// Whether the fields are those of tus, in the version that is supported.
///
/// # Errors
/// 412 for another version.
pub(crate) fn is_tus(fields: &HeadFields<'_>) -> Result<bool, HttpError> {
    match fields.once("Tus-Resumable")? {
        None => Ok(false),
        Some(VERSION) => Ok(true),
        Some(_) => Err(OTHER_VERSION),
    }
}

impl<'b> CreationFields<'b> {
    /// Reads the fields.
    ///
    /// # Errors
    /// 400 for malformed fields, and for fields that contradict each other.
    pub(crate) fn parse(fields: &HeadFields<'b>) -> Result<CreationFields<'b>, HttpError> {
        let length = fields.bytes("Upload-Length")?;
        let is_deferred = match fields.once("Upload-Defer-Length")? {
            None => false,
            Some(b"1") => true,
            Some(_) => return Err(HttpError::bad("Upload-Defer-Length is not 1")),
        };
        let role = match fields.once("Upload-Concat")? {
            None => ConcatRole::Whole,
            Some(value) => ConcatRole::parse(value)?,
        };
        match (&role, length, is_deferred) {
            (ConcatRole::Final(_), None, false) => {}
            (ConcatRole::Final(_), ..) => {
                return Err(HttpError::bad(
                    "the length of joined parts is not announced",
                ));
            }
            (_, Some(_), false) | (_, None, true) => {}
            _ => {
                return Err(HttpError::bad(
                    "expected either Upload-Length or Upload-Defer-Length: 1",
                ));
            }
        }
        let metadata = fields.once("Upload-Metadata")?;
        Ok(CreationFields {
            length,
            metadata: metadata.map_or(Ok(UploadMetadata::default()), UploadMetadata::parse)?,
            role,
        })
    }
}

impl ConcatRole {
    fn parse(value: &[u8]) -> Result<ConcatRole, HttpError> {
        const MALFORMED: HttpError = HttpError::bad("Upload-Concat is malformed");
        if value == b"partial" {
            return Ok(ConcatRole::Partial);
        }
        let urls = value.strip_prefix(b"final;").ok_or(MALFORMED)?;
        let urls = urls.split(u8::is_ascii_whitespace);
        let parts = urls.filter(|url| !url.is_empty()).map(upload_of_url);
        let parts: Vec<UploadId> = parts.collect::<Result<_, _>>()?;
        let is_repeated = |(at, part)| parts[..at].contains(part);
        match parts.len() {
            0 => Err(MALFORMED),
            count if count > PARTS_MAX => Err(HttpError::bad("the file has too many parts")),
            _ if parts.iter().enumerate().any(is_repeated) => {
                Err(HttpError::bad("a part of the file is named twice"))
            }
            _ => Ok(ConcatRole::Final(parts)),
        }
    }
}

impl AppendFields {
    /// Reads the fields.
    ///
    /// # Errors
    /// 400 for malformed fields, and without `Upload-Offset`.
    pub(crate) fn parse(fields: &HeadFields<'_>) -> Result<AppendFields, HttpError> {
        let offset = fields.bytes("Upload-Offset")?;
        Ok(AppendFields {
            offset: offset.ok_or(HttpError::bad("the Upload-Offset field is missing"))?,
            length: fields.bytes("Upload-Length")?,
            checksum: checksum(fields)?,
        })
    }
}

/// Reads `Upload-Checksum`.
///
/// # Errors
/// 400 for a malformed field, and for an algorithm that is not supported.
pub(crate) fn checksum(fields: &HeadFields<'_>) -> Result<Option<ExpectedDigest>, HttpError> {
    const MALFORMED: HttpError = HttpError::bad("Upload-Checksum is malformed");
    let Some(value) = fields.once("Upload-Checksum")? else {
        return Ok(None);
    };
    let space = value.iter().position(|&byte| byte == b' ');
    let (name, hash) = value.split_at(space.ok_or(MALFORMED)?);
    let algorithm = match name {
        b"sha1" => Algorithm::Sha1,
        b"sha256" => Algorithm::Sha256,
        b"sha512" => Algorithm::Sha512,
        _ => {
            return Err(HttpError::bad(
                "the algorithm of Upload-Checksum is not supported",
            ));
        }
    };
    let hash = BASE64_STANDARD.decode(hash.trim_ascii());
    let hash = hash
        .ok()
        .filter(|hash: &Vec<u8>| hash.len() == algorithm.length());
    Ok(Some(ExpectedDigest {
        algorithm,
        hash: hash.ok_or(MALFORMED)?,
    }))
}

impl<'b> UploadMetadata<'b> {
    fn parse(value: &'b [u8]) -> Result<UploadMetadata<'b>, HttpError> {
        const MALFORMED: HttpError = HttpError::bad("Upload-Metadata is malformed");
        let text = std::str::from_utf8(value).ok().filter(|it| it.is_ascii());
        let text = text.ok_or(MALFORMED)?;
        let mut metadata = UploadMetadata {
            text,
            ..UploadMetadata::default()
        };
        let mut keys = Vec::new();
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let mut parts = pair.split_ascii_whitespace();
            let (key, value) = (parts.next(), parts.next().unwrap_or_default());
            let key = key
                .filter(|_| parts.next().is_none())
                .ok_or(MALFORMED)?
                .to_ascii_lowercase();
            let value = BASE64_STANDARD.decode(value).map_err(|_| MALFORMED)?;
            match &key[..] {
                "filename" => metadata.filename = Some(value),
                "relativepath" => metadata.relative_path = Some(value),
                _ => {}
            }
            match keys.contains(&key) {
                true => return Err(MALFORMED),
                false => keys.push(key),
            }
        }
        Ok(metadata)
    }

    /// Returns the path of the file beneath the folder that the request names: `relativePath`, or
    /// `filename` in it where `relativePath` is that of a folder. `None` without a name.
    ///
    /// # Errors
    /// [`ReceiveFault::Name`] for a name that files may not be received under.
    pub(crate) fn path(&self) -> Result<Option<RelativePath>, ReceiveFault> {
        let name = self.filename.as_deref();
        if name.is_some_and(|name| name.contains(&b'/')) {
            return Err(ReceiveFault::Name("the filename contains a slash"));
        }
        let name = name.map(RelativePath::parse).transpose()?;
        // Uppy sends `null` for files that were not in a folder.
        let beneath = self.relative_path.as_deref();
        let beneath = beneath.filter(|path| !path.is_empty() && *path != b"null");
        let beneath =
            beneath.map(|path| RelativePath::parse(path.strip_suffix(b"/").unwrap_or(path)));
        Ok(match (beneath.transpose()?, name) {
            (None, name) => name,
            (Some(path), Some(name)) if path.name() != name.as_str() => Some(path.join(&name)?),
            (path, _) => path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(fields: &str, read: impl Fn(&HeadFields<'_>) -> T) -> T {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        read(&HeadFields::of(head.as_bytes()))
    }

    fn metadata(pairs: &[(&str, &[u8])]) -> String {
        let pairs = pairs
            .iter()
            .map(|(key, value)| format!("{key} {}", BASE64_STANDARD.encode(value)));
        pairs.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn other_versions_are_refused() {
        let is = |fields: &str| with(fields, is_tus);
        assert_eq!(is("Tus-Resumable: 1.0.0"), Ok(true));
        assert_eq!(is("X: 1"), Ok(false));
        for other in ["", "1.0", "0.2.2", "1.0.0, 1.0.0", "2.0.0"] {
            assert_eq!(
                is(&format!("Tus-Resumable: {other}")),
                Err(OTHER_VERSION),
                "{other}"
            );
        }
    }

    #[test]
    fn an_upload_has_a_length_or_announces_it_later() {
        let id = "0123456789abcdef0123456789abcdef";
        let parsed = |fields: &str| {
            with(fields, |fields| {
                CreationFields::parse(fields).map(|it| (it.length, it.role))
            })
        };
        assert_eq!(parsed("Upload-Length: 0"), Ok((Some(0), ConcatRole::Whole)));
        assert_eq!(
            parsed("Upload-Defer-Length: 1"),
            Ok((None, ConcatRole::Whole))
        );
        assert_eq!(
            parsed("Upload-Length: 5\r\nUpload-Concat: partial"),
            Ok((Some(5), ConcatRole::Partial))
        );
        let other = id.replace('0', "1");
        let urls = format!("Upload-Concat: final;/a?upload={id} ?upload={other}");
        let ids = [id, &other].map(|id| UploadId::parse(id.as_bytes()).unwrap());
        assert_eq!(parsed(&urls), Ok((None, ConcatRole::Final(ids.to_vec()))));
        for bad in [
            "X: 1",
            "Upload-Length: -1",
            "Upload-Length: 1.5",
            "Upload-Length: 0x10",
            "Upload-Length: 99999999999999999999999999",
            "Upload-Length: 9223372036854775808",
            "Upload-Length: 1\r\nUpload-Length: 2",
            "Upload-Defer-Length: 0",
            "Upload-Defer-Length: 1\r\nUpload-Length: 1",
            "Upload-Length: 1\r\nUpload-Concat: part",
            "Upload-Concat: final;",
            "Upload-Concat: final;/a",
            &format!("Upload-Concat: final;?upload={id} ?upload={id}"),
            &format!("Upload-Length: 1\r\n{urls}"),
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        let many: Vec<_> = (0..=PARTS_MAX)
            .map(|at| format!("?upload={at:032x}"))
            .collect();
        assert!(parsed(&format!("Upload-Concat: final;{}", many.join(" "))).is_err());
    }

    #[test]
    fn names_are_single_and_folders_are_those_of_the_relative_path() {
        let path = |pairs: &[(&str, &[u8])]| {
            let text = metadata(pairs);
            let metadata = UploadMetadata::parse(text.as_bytes()).unwrap();
            metadata
                .path()
                .map(|path| path.map(|path| path.as_str().to_owned()))
        };
        let is = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(path(&[("a", b"b")]), Ok(None));
        assert_eq!(path(&[("filename", b"a b.txt")]), is("a b.txt"));
        assert_eq!(path(&[("relativePath", b"d/e/f")]), is("d/e/f"));
        let file: (&str, &[u8]) = ("filename", b"f");
        assert_eq!(path(&[file, ("relativePath", b"d/f")]), is("d/f"));
        assert_eq!(path(&[file, ("relativepath", b"d/e/")]), is("d/e/f"));
        assert_eq!(path(&[file, ("relativePath", b"null")]), is("f"));
        assert_eq!(path(&[file, ("relativePath", b"")]), is("f"));
        for bad in [
            &b"a/b"[..],
            b"/etc/passwd",
            b"..",
            b".",
            b"",
            b".hidden",
            b"a\0b",
            b"a\\b",
            b"a\nb",
            b"\xff",
        ] {
            assert!(
                path(&[("filename", bad)]).is_err(),
                "{}",
                bad.escape_ascii()
            );
        }
        for bad in [&b"../f"[..], b"/f", b"d/../f", b"d//f", b".git/f", b"d/\0"] {
            assert!(path(&[file, ("relativePath", bad)]).is_err());
        }
    }

    #[test]
    fn metadata_are_pairs_with_different_keys() {
        for good in ["", "a", "a ", "a YQ==", "a YQ==,b", "a YQ==, b YQ=="] {
            let metadata = UploadMetadata::parse(good.as_bytes());
            assert_eq!(metadata.map(|it| it.text), Ok(good), "{good:?}");
        }
        for bad in [
            ",",
            "a YQ==,",
            "a YQ== b",
            "a !",
            "a YQ",
            "a,A",
            "\u{e4} YQ==",
        ] {
            assert!(UploadMetadata::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_body_is_placed_by_its_offset_and_checked() {
        let parsed = |fields: &str| with(fields, AppendFields::parse);
        let sha1 = BASE64_STANDARD.encode([7; 20]);
        let good = format!("Upload-Offset: 3\r\nUpload-Length: 9\r\nUpload-Checksum: sha1 {sha1}");
        assert_eq!(
            parsed(&good),
            Ok(AppendFields {
                offset: 3,
                length: Some(9),
                checksum: Some(ExpectedDigest {
                    algorithm: Algorithm::Sha1,
                    hash: vec![7; 20],
                }),
            })
        );
        for bad in [
            "X: 1",
            "Upload-Offset: -1",
            "Upload-Offset: 9223372036854775808",
            "Upload-Offset: 18446744073709551616",
            "Upload-Offset: 0\r\nUpload-Offset: 0",
            &format!("Upload-Offset: 0\r\nUpload-Checksum: sha256 {sha1}"),
            &format!("Upload-Offset: 0\r\nUpload-Checksum: crc32 {sha1}"),
            "Upload-Offset: 0\r\nUpload-Checksum: sha1",
            "Upload-Offset: 0\r\nUpload-Checksum: sha1 !",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
