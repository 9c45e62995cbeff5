//! Content codings, and their negotiation: RFC 9110, section 12.5.3.

use serde::Deserialize;

/// A content coding of a stored copy of a file, or of a body compressed while it is sent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Brotli, `.br`.
    Br,
    /// Zstandard, `.zst`.
    Zstd,
    /// Gzip, `.gz`.
    Gzip,
}

impl Coding {
    /// All codings, the one that usually compresses best first.
    pub const ALL: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

    /// Returns the name in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Br => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns the suffix of files in this coding.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Br => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// Returns the index in [`Coding::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    fn named(name: &[u8]) -> Option<Coding> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        let mut all = Coding::ALL.into_iter();
        all.find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// A quality value in thousandths; 0 means not acceptable.
pub type Quality = u16;

/// The parsed value of `Accept-Encoding`.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Acceptable {
    codings: [Option<Quality>; Coding::ALL.len()],
    identity: Option<Quality>,
    /// `*`: all codings that are not named.
    others: Option<Quality>,
}

impl Acceptable {
    /// Parses the field. Without it, only the plain file is certain to be readable. Malformed
    /// members are ignored.
    pub fn parse(field: Option<&[u8]>) -> Acceptable {
        let mut acceptable = Acceptable::default();
        for member in field.unwrap_or_default().split(|&byte| byte == b',') {
            let Some((name, quality)) = parse_member(member) else {
                continue;
            };
            match Coding::named(name) {
                Some(coding) => acceptable.codings[coding.index()] = Some(quality),
                None if name == b"*" => acceptable.others = Some(quality),
                None if name.eq_ignore_ascii_case(b"identity") => {
                    acceptable.identity = Some(quality);
                }
                None => {}
            }
        }
        acceptable
    }

    /// Whether the plain file may be sent.
    pub fn takes_identity(&self) -> bool {
        self.identity.or(self.others) != Some(0)
    }

    /// Returns those of `preferred` that the client accepts and rates at least as high as the plain
    /// file, best first, and in the order of `preferred` if rated equally.
    pub fn choices(&self, preferred: &[Coding]) -> impl Iterator<Item = Coding> {
        let plain = self.identity.unwrap_or(0);
        let mut choices = [None; Coding::ALL.len()];
        for (choice, &coding) in choices.iter_mut().zip(preferred) {
            let quality = self.codings[coding.index()].or(self.others).unwrap_or(0);
            *choice = (quality > 0 && quality >= plain).then_some((quality, coding));
        }
        choices.sort_by_key(|choice| std::cmp::Reverse(choice.map(|(quality, _)| quality)));
        choices.into_iter().flatten().map(|(_, coding)| coding)
    }
}

/// Parses `coding [ ";" "q=" qvalue ]`.
fn parse_member(member: &[u8]) -> Option<(&[u8], Quality)> {
    let mut parts = member.split(|&byte| byte == b';');
    let name = parts.next()?.trim_ascii();
    if name.is_empty() {
        return None;
    }
    let quality = match parts.next().map(<[u8]>::trim_ascii) {
        None => 1000,
        Some([b'q' | b'Q', b'=', value @ ..]) => parse_quality(value)?,
        Some(_) => return None,
    };
    parts.next().is_none().then_some((name, quality))
}

/// Parses `0` or `1` with at most three decimal places.
pub fn parse_quality(value: &[u8]) -> Option<Quality> {
    let (whole, digits) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (*whole, digits),
        _ => return None,
    };
    let mut quality = Quality::from(whole - b'0') * 1000;
    for (digit, worth) in digits.iter().zip([100, 10, 1]) {
        quality += worth * Quality::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    (quality <= 1000).then_some(quality)
}

/// Whether a file name ends with the suffix of a coding.
pub fn is_compressed(path: &[u8]) -> bool {
    let mut all = Coding::ALL.into_iter();
    all.any(|coding| path.ends_with(coding.suffix().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(field: &str) -> String {
        let acceptable = Acceptable::parse(Some(field.as_bytes()));
        let mut names: Vec<_> = acceptable.choices(&Coding::ALL).map(Coding::name).collect();
        if acceptable.takes_identity() {
            names.push("identity");
        }
        names.join(" ")
    }

    #[test]
    fn what_is_liked_best_comes_first_and_what_is_refused_never() {
        for (field, expected) in [
            ("", "identity"),
            ("gzip", "gzip identity"),
            ("gzip, deflate, br, zstd", "br zstd gzip identity"),
            ("GZip;Q=1.000 , BR ;q=0.5", "gzip br identity"),
            ("x-gzip", "gzip identity"),
            ("br;q=0, gzip", "gzip identity"),
            ("br;q=0.001, gzip;q=0.002", "gzip br identity"),
            ("*", "br zstd gzip identity"),
            ("*;q=0.5, gzip", "gzip br zstd identity"),
            ("gzip, *;q=0", "gzip"),
            ("gzip, *;q=0, identity;q=0.5", "gzip identity"),
            ("identity", "identity"),
            ("deflate, gzip;q=0.5", "gzip identity"),
            ("identity, gzip;q=0.5", "identity"),
            ("identity;q=0.5, gzip;q=0.5", "gzip identity"),
            ("identity;q=0", ""),
            ("*;q=0", ""),
            ("identity;q=0, br", "br"),
            ("br;q=2, gzip;q=0.1234, zstd;q=x", "identity"),
            ("br;level=9, gzip;q=1;x=y", "identity"),
            (",, ,gzip,", "gzip identity"),
            ("br;q=1.001", "identity"),
        ] {
            assert_eq!(chosen(field), expected, "{field:?}");
        }
        assert!(
            Acceptable::parse(None)
                .choices(&Coding::ALL)
                .next()
                .is_none()
        );
        assert!(Acceptable::parse(None).takes_identity());
    }

    #[test]
    fn the_preference_of_the_server_decides_among_equals() {
        let acceptable = Acceptable::parse(Some(b"br, gzip, zstd;q=0.5"));
        let preferred = [Coding::Zstd, Coding::Gzip, Coding::Br];
        let choices: Vec<_> = acceptable.choices(&preferred).collect();
        assert_eq!(choices, [Coding::Gzip, Coding::Br, Coding::Zstd]);
        let only: Vec<_> = acceptable.choices(&[Coding::Br]).collect();
        assert_eq!(only, [Coding::Br]);
    }

    #[test]
    fn names_of_compressed_files_end_with_the_suffix_of_a_coding() {
        for name in ["a.css.br", "a.tar.zst", "a.gz", ".gz"] {
            assert!(is_compressed(name.as_bytes()), "{name}");
        }
        for name in ["a.css", "gz", "a.gz.txt", "a.br/b", ""] {
            assert!(!is_compressed(name.as_bytes()), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_field_panics(field in "[a-z*;=q01., \t]{0,32}") {
            let _ = chosen(&field);
        }
    }
}
