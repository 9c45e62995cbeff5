//! Headers of requests and responses.

use crate::protocol::apis::{API_VERSIONS, Api, find};
use crate::protocol::reader::{DecodeError, MessageVersion, Reader};
use crate::protocol::writer::Writer;

/// The header of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestHeader<'a> {
    /// The API key.
    pub key: i16,
    /// The version.
    pub version: i16,
    /// The ID by which the client matches the response.
    pub correlation_id: i32,
    /// The client ID.
    pub client_id: Option<&'a str>,
}

/// A request with its header decoded, and whether this broker supports it.
#[derive(Clone, Debug)]
pub enum RequestStart<'a> {
    /// A supported request, with its body.
    Known(RequestHeader<'a>, &'static Api, Reader<'a>),
    /// ApiVersions in an unknown version, answered in version 0 with the known versions (KIP-511).
    UnknownApiVersions(RequestHeader<'a>),
    /// Another request or version. The client would not understand any response.
    Unknown(RequestHeader<'a>),
}

/// The encoding of fields that are never flexible.
const FIXED: MessageVersion = MessageVersion {
    number: 0,
    flexible: false,
};

/// Reads the header of a request.
///
/// # Errors
/// [`DecodeError`]: the bytes are not a request.
pub fn read_header(frame: &[u8]) -> Result<RequestStart<'_>, DecodeError> {
    let mut from = Reader::new(frame);
    let mut header = RequestHeader {
        key: i16::from_be_bytes(from.array()?),
        version: i16::from_be_bytes(from.array()?),
        correlation_id: i32::from_be_bytes(from.array()?),
        client_id: None,
    };
    let Some(api) = find(header.key) else {
        // In any version, nearly all headers have a client ID here.
        header.client_id = from.string(FIXED).unwrap_or_default();
        return Ok(RequestStart::Unknown(header));
    };
    if !(api.served_from..=api.advertised.1).contains(&header.version) {
        return Ok(match header.key {
            API_VERSIONS => RequestStart::UnknownApiVersions(header),
            _ => RequestStart::Unknown(header),
        });
    }
    // This length has the fixed size even where other lengths have a variable one.
    header.client_id = from.string(FIXED)?;
    if header.version >= api.flexible {
        from.tagged(|_, _| Ok(false))?;
    }
    Ok(RequestStart::Known(header, api, from))
}

/// Writes the header of a response. That of ApiVersions is never flexible, since the client may not
/// know the supported versions yet.
pub fn write_header(to: &mut Writer, api: &Api, version: i16, correlation_id: i32) {
    to.put(&correlation_id.to_be_bytes());
    if version >= api.flexible && api.key != API_VERSIONS {
        to.tagged(&[]);
    }
}

/// Writes the header of a request, as a client.
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

/// Reads the header of a response and returns its correlation ID.
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
