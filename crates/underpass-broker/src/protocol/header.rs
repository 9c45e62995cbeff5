//! What stands before a request, and before a response.

use crate::protocol::apis::{API_VERSIONS, Api, find};
use crate::protocol::reader::{DecodeError, MessageVersion, Reader};
use crate::protocol::writer::Writer;

/// What stands before a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestHeader<'a> {
    /// The number of its kind.
    pub key: i16,
    /// Its version.
    pub version: i16,
    /// What its response is recognized by.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<&'a str>,
}

/// The beginning of a request: its header, and whether this broker answers it.
#[derive(Clone, Debug)]
pub enum RequestStart<'a> {
    /// One that is answered, and its body.
    Known(RequestHeader<'a>, &'static Api, Reader<'a>),
    /// ApiVersions in a version that is not known: it is answered in version 0, with what is known
    /// (KIP-511).
    UnknownApiVersions(RequestHeader<'a>),
    /// Another kind, or version. There is no answer that the client would understand.
    Unknown(RequestHeader<'a>),
}

/// The encoding of everything but what is flexible.
const FIXED: MessageVersion = MessageVersion {
    number: 0,
    flexible: false,
};

/// Reads the header of a request.
///
/// # Errors
/// [`DecodeError`]: these bytes are no request.
pub fn read_header(frame: &[u8]) -> Result<RequestStart<'_>, DecodeError> {
    let mut from = Reader::new(frame);
    let mut header = RequestHeader {
        key: i16::from_be_bytes(from.array()?),
        version: i16::from_be_bytes(from.array()?),
        correlation_id: i32::from_be_bytes(from.array()?),
        client_id: None,
    };
    let Some(api) = find(header.key) else {
        // Whatever the version, nearly all headers go on with it.
        header.client_id = from.string(FIXED).unwrap_or_default();
        return Ok(RequestStart::Unknown(header));
    };
    if !(api.served_from..=api.advertised.1).contains(&header.version) {
        return Ok(match header.key {
            API_VERSIONS => RequestStart::UnknownApiVersions(header),
            _ => RequestStart::Unknown(header),
        });
    }
    // As long as all other lengths may be short, this one is not.
    header.client_id = from.string(FIXED)?;
    if header.version >= api.flexible {
        from.tagged(|_, _| Ok(false))?;
    }
    Ok(RequestStart::Known(header, api, from))
}

/// Writes what stands before the response to a request. That to ApiVersions is never flexible: the
/// client may not know that yet.
pub fn write_header(to: &mut Writer, api: &Api, version: i16, correlation_id: i32) {
    to.put(&correlation_id.to_be_bytes());
    if version >= api.flexible && api.key != API_VERSIONS {
        to.tagged(&[]);
    }
}

/// Writes what stands before a request: the part of a client.
pub(crate) fn write_request_header(
    to: &mut Writer,
    api: &Api,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) {
    to.put(&api.key.to_be_bytes());
    to.put(&version.to_be_bytes());
    to.put(&correlation_id.to_be_bytes());
    to.string_length(FIXED, Some(client_id.len()));
    to.put(client_id.as_bytes());
    if version >= api.flexible {
        to.tagged(&[]);
    }
}

/// Reads what stands before a response, and returns its correlation id.
pub(crate) fn read_response_header(
    from: &mut Reader<'_>,
    api: &Api,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = i32::from_be_bytes(from.array()?);
    if version >= api.flexible && api.key != API_VERSIONS {
        from.tagged(|_, _| Ok(false))?;
    }
    Ok(correlation_id)
}
