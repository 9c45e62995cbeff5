//! The URL of a resumable upload: that of its creation with the query `upload=ID`. It is relative,
//! so that it is right behind a proxy that passes a part of the path, and access rules judge the
//! same path in every request.

use underpass_http::status::HttpError;
use underpass_receive::UploadId;

const PARAMETER: &[u8] = b"upload=";

const MALFORMED: HttpError = HttpError::bad("the upload's identifier is malformed");

/// Returns the value of `Location`.
pub(crate) fn location(id: &UploadId) -> String {
    format!("?upload={id}")
}

/// Returns the upload that a query names; `None` where it names none.
///
/// # Errors
/// 400 for anything but one identifier.
pub(crate) fn upload_of(query: Option<&[u8]>) -> Option<Result<UploadId, HttpError>> {
    let pairs = query?.split(|&byte| byte == b'&');
    let mut values = pairs.filter_map(|pair| match pair {
        b"upload" => Some(&b""[..]),
        pair => pair.strip_prefix(PARAMETER),
    });
    let value = values.next()?;
    let id = UploadId::parse(value).filter(|_| values.next().is_none());
    Some(id.ok_or(MALFORMED))
}

/// Returns the upload that a URL names, whatever its path: a proxy may have changed that.
///
/// # Errors
/// 400 for anything but one identifier.
pub(crate) fn upload_of_url(url: &[u8]) -> Result<UploadId, HttpError> {
    let url = url.split(|&byte| byte == b'#').next().unwrap_or_default();
    let query = url.iter().position(|&byte| byte == b'?');
    upload_of(query.map(|at| &url[at + 1..])).unwrap_or(Err(MALFORMED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_named_once_and_exactly() {
        let id = "0123456789abcdef0123456789abcdef";
        let named = |query: &str| {
            let named = upload_of(Some(query.as_bytes()));
            named.map(|named| named.map(|id| id.to_string()).ok())
        };
        assert_eq!(named(&format!("upload={id}")), Some(Some(id.to_owned())));
        assert_eq!(
            named(&format!("a=b&upload={id}&c")),
            Some(Some(id.to_owned()))
        );
        for none in ["", "uploads=1", "a=upload", "Upload=1", "xupload=1"] {
            assert_eq!(named(none), None, "{none}");
        }
        let upper = id.to_uppercase();
        for bad in [
            "upload",
            "upload=",
            "upload=..",
            "upload=%2e%2e",
            &format!("upload={upper}"),
            &format!("upload={id}0"),
            &format!("upload={id}%2Fx"),
            &format!("upload=.%2F{id}"),
            &format!("upload={id}&upload={id}"),
            &format!("upload={id}.json"),
        ] {
            assert_eq!(named(bad), Some(None), "{bad}");
        }
        assert_eq!(upload_of(None), None);
        let random = UploadId::random().unwrap();
        for before in ["", "/incoming/", "https://a.example/b/c"] {
            let url = format!("{before}{}", location(&random));
            assert_eq!(upload_of_url(url.as_bytes()), Ok(random.clone()), "{url}");
        }
        assert!(upload_of_url(id.as_bytes()).is_err());
        assert!(upload_of_url(format!("/#?upload={id}").as_bytes()).is_err());
    }
}
