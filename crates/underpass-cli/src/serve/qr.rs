//! QR codes for terminals.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};

/// Draws `text` as a QR code of half blocks with the margin that readers need. `None` if the text
/// is too long, which an address never is.
pub(crate) fn code(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    // Most terminals are dark: a drawn block is light.
    let drawn = code
        .render::<Dense1x2>()
        .dark_color(Dense1x2::Light)
        .light_color(Dense1x2::Dark)
        .build();
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_a_small_terminal() {
        let code = code("http://192.168.100.100:65535/").unwrap();
        assert!(code.lines().count() <= 20, "{code}");
        let widths: Vec<_> = code.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{code}");
        assert!(super::code(&"x".repeat(4000)).is_none());
    }
}
