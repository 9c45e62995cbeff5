//! Response fields that show how the response is sent, for debugging.
//!
//! ```text
//! Underpass-Plan: splice, sendfile, read_write; cold; not clone (the sink is not a regular file)
//! Underpass-Previous: 100000 bytes by sendfile (1 call)
//! Underpass-TLS: TLSv1.3, TLS_AES_128_GCM_SHA256, full handshake; sealed in user space; name a.b
//! ```
//!
//! The head leaves before the body, so it can report only the plan for its own body: the kernel may
//! still refuse. The measured account is that of the previous response on the connection.

use serde::Deserialize;
use underpass::drive::tokio::{Forecast, Residency};
use underpass::{Account, Joining};
use underpass_net::{SealedBy, TlsInfo};

/// Whether responses show how they are sent. For debugging: it exposes properties of files and
/// kernel to clients, and costs some system calls per response.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(from = "bool")]
pub enum Explain {
    /// No response does.
    #[default]
    Off,
    /// All responses do, in the fields `Underpass-Plan`, `Underpass-Previous` and `Underpass-TLS`.
    On,
}

impl From<bool> for Explain {
    fn from(wanted: bool) -> Explain {
        if wanted { Explain::On } else { Explain::Off }
    }
}

/// The transfer of the previous response body on a connection.
#[derive(Debug, Default)]
pub(crate) struct PreviousResponse {
    pub(crate) account: Account,
    /// Bytes not from a file: a page, a listing, a compressed file.
    pub(crate) memory_bytes: u64,
}

/// The plan for a body that is in memory with its head.
pub(crate) const IN_MEMORY: &str = "joined with its head by read_write; kept in memory";

/// Formats the plan for a body, without the field name.
pub(crate) fn planned(forecast: &Forecast) -> String {
    let mut text = match forecast.joining {
        Joining::Joined => "joined with its head by read_write".to_owned(),
        Joining::Apart => {
            let tiers: Vec<_> = forecast.plan.tiers().map(|tier| tier.name()).collect();
            match tiers.is_empty() {
                true => "no mechanism is allowed".to_owned(),
                false => tiers.join(", "),
            }
        }
    };
    text.push_str(match forecast.residency {
        Residency::Cached => "; in the page cache",
        Residency::Cold => "; cold",
    });
    for (mechanism, reason) in forecast.plan.left_out() {
        text.push_str(&format!("; not {mechanism} ({reason})"));
    }
    text
}

/// Formats the fields, each starting with a line break.
pub(crate) fn fields(
    planned: Option<&str>,
    previous: Option<&PreviousResponse>,
    tls: Option<(&TlsInfo, SealedBy)>,
) -> String {
    let mut fields = String::new();
    if let Some(planned) = planned {
        fields.push_str("\r\nUnderpass-Plan: ");
        fields.push_str(planned);
    }
    if let Some(previous) = previous {
        let travelled = travelled(&previous.account, previous.memory_bytes);
        fields.push_str(&format!("\r\nUnderpass-Previous: {travelled}"));
    }
    if let Some((tls, sealed_by)) = tls {
        fields.push_str("\r\nUnderpass-TLS: ");
        fields.push_str(&agreed(tls, sealed_by));
    }
    fields
}

/// Formats the handshake result and where encryption takes place. Values that the peer has chosen
/// cannot end the field.
fn agreed(tls: &TlsInfo, sealed_by: SealedBy) -> String {
    let (version, cipher, kind) = (tls.version.name(), tls.cipher_suite, tls.handshake.name());
    let sealed_by = sealed_by.name().replace('_', " ");
    let mut text = format!("{version}, {cipher}, {kind} handshake; sealed in {sealed_by}");
    for (what, said) in [("name", &tls.server_name), ("client", &tls.client)] {
        if let Some(said) = said {
            let visible = said.chars().map(|letter| match letter {
                ' '..='~' => letter,
                _ => '?',
            });
            text.push_str(&format!("; {what} "));
            text.extend(visible);
        }
    }
    text
}

/// Formats an account: bytes from files by mechanism, or the number of bytes from memory alone.
pub(crate) fn travelled(account: &Account, memory_bytes: u64) -> String {
    let is_empty = account.bytes() == 0 && account.refusals.is_empty();
    match (is_empty, memory_bytes) {
        (false, _) | (true, 0) => account.to_string(),
        (true, bytes) => format!("{bytes} bytes from memory"),
    }
}

/// Inserts fields at the end of a head of `head_bytes`, before the body.
pub(crate) fn insert(head: &mut Vec<u8>, head_bytes: usize, fields: &str) {
    if let Some(end) = head_bytes.checked_sub(b"\r\n\r\n".len()) {
        head.splice(end..end, fields.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_between_head_and_body() {
        let mut head = b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nbody\r\n\r\n".to_vec();
        let head_bytes = head.len() - b"body\r\n\r\n".len();
        insert(
            &mut head,
            head_bytes,
            &fields(Some("x"), Some(&PreviousResponse::default()), None),
        );
        let expected = "HTTP/1.1 404 Not Found\r\nA: b\r\nUnderpass-Plan: x\r\n\
                        Underpass-Previous: nothing to move\r\n\r\nbody\r\n\r\n";
        assert_eq!(head, expected.as_bytes());
    }
}
