//! What an answer says about its own way, for those who debug: two fields in its head.
//!
//! ```text
//! Underpass-Plan: splice, sendfile, read_write; cold; not clone (the sink is not a regular file)
//! Underpass-Previous: 100000 bytes by sendfile (1 call)
//! ```
//!
//! The head leaves before the body, so what it says of its own body is a plan: the kernel may still
//! refuse. What was measured is that of the previous answer on the connection.

use serde::Deserialize;
use underpass::drive::tokio::{Forecast, Warmth};
use underpass::{Account, Joining};

/// Whether answers explain themselves. It tells clients about files and kernel, and costs some
/// system calls for each: for debugging.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(from = "bool")]
pub enum Explain {
    /// No.
    #[default]
    Off,
    /// All of them, by the fields `Underpass-Plan` and `Underpass-Previous`.
    On,
}

impl From<bool> for Explain {
    fn from(wanted: bool) -> Explain {
        match wanted {
            true => Explain::On,
            false => Explain::Off,
        }
    }
}

/// What an answer says of a body that is in memory with its head already.
pub(crate) const IN_MEMORY: &str = "joined with its head by read_write; kept in memory";

/// What an answer says of its body, without the field's name.
pub(crate) fn planned(forecast: &Forecast) -> String {
    let mut text = match forecast.joining {
        Joining::Joined => "joined with its head by read_write".to_owned(),
        Joining::Apart => {
            let tiers: Vec<_> = forecast.plan.tiers().map(|tier| tier.name()).collect();
            match tiers.is_empty() {
                true => "nothing is allowed".to_owned(),
                false => tiers.join(", "),
            }
        }
    };
    text.push_str(match forecast.warmth {
        Warmth::Cached => "; in the page cache",
        Warmth::Cold => "; cold",
    });
    for (mechanism, reason) in forecast.plan.left_out() {
        text.push_str(&format!("; not {mechanism} ({reason})"));
    }
    text
}

/// The fields, each beginning with a line end.
pub(crate) fn fields(planned: Option<&str>, previous: Option<&Account>) -> String {
    let mut fields = String::new();
    if let Some(planned) = planned {
        fields.push_str("\r\nUnderpass-Plan: ");
        fields.push_str(planned);
    }
    if let Some(previous) = previous {
        fields.push_str(&format!("\r\nUnderpass-Previous: {previous}"));
    }
    fields
}

/// Puts fields at the end of a head, in front of the body that may follow it in the same piece.
pub(crate) fn insert(head: &mut Vec<u8>, fields: &str) {
    if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
        head.splice(end..end, fields.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_between_head_and_body() {
        let mut head = b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nbody\r\n\r\n".to_vec();
        insert(&mut head, &fields(Some("x"), Some(&Account::default())));
        let expected = "HTTP/1.1 404 Not Found\r\nA: b\r\nUnderpass-Plan: x\r\n\
                        Underpass-Previous: nothing to move\r\n\r\nbody\r\n\r\n";
        assert_eq!(head, expected.as_bytes());
    }
}
