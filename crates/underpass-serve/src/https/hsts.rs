//! Strict-Transport-Security (RFC 6797): browsers return over HTTPS only.

use std::time::Duration;

const INCLUDE_SUBDOMAINS: &str = "includeSubDomains";
const PRELOAD: &str = "preload";

/// The minimum that browsers' preload lists require: a year.
const PRELOAD_MIN: Duration = Duration::from_secs(365 * 86_400);

/// Formats the field for a value like `1y; includeSubDomains; preload`, preceded by a line break.
///
/// # Errors
/// A description of the mistake.
pub(crate) fn field(text: &str) -> Result<String, String> {
    let mut parts = text.split(';').map(str::trim);
    let time = parts.next().unwrap_or_default();
    let age: Duration = humantime_serde::re::humantime::parse_duration(time).map_err(|_| {
        format!("{time:?} is no time; expected for example \"1y\" or \"180d; includeSubDomains\"")
    })?;
    let mut field = format!("\r\nStrict-Transport-Security: max-age={}", age.as_secs());
    let (mut has_subdomains, mut is_preloaded) = (false, false);
    for part in parts {
        let known = [
            (INCLUDE_SUBDOMAINS, &mut has_subdomains),
            (PRELOAD, &mut is_preloaded),
        ];
        let (name, seen) = known
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(part))
            .ok_or_else(|| {
                format!("unknown directive {part:?}; expected {INCLUDE_SUBDOMAINS} or {PRELOAD}")
            })?;
        if std::mem::replace(seen, true) {
            return Err(format!("{name} is there twice"));
        }
        field.push_str("; ");
        field.push_str(name);
    }
    match is_preloaded && (!has_subdomains || age < PRELOAD_MIN) {
        true => Err(format!(
            "{PRELOAD} needs {INCLUDE_SUBDOMAINS} and at least a year"
        )),
        false => Ok(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_and_directives_become_a_field() {
        let name = "\r\nStrict-Transport-Security: ";
        for (text, value) in [
            ("365d", "max-age=31536000"),
            ("0s", "max-age=0"),
            ("1h; INCLUDESUBDOMAINS", "max-age=3600; includeSubDomains"),
            (
                "2y;includeSubDomains ; preload",
                "max-age=63115200; includeSubDomains; preload",
            ),
        ] {
            assert_eq!(field(text).unwrap(), format!("{name}{value}"));
        }
        for (text, words) in [
            ("", "is no time"),
            ("31536000", "is no time"),
            ("1y; all", "unknown directive \"all\""),
            ("1y;", "unknown directive \"\""),
            ("1y; preload", "needs includeSubDomains"),
            ("1h; preload; includeSubDomains", "at least a year"),
            ("1y; preload; preload", "twice"),
        ] {
            let error = field(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
