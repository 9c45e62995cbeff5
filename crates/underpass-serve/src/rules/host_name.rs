//! The names of sites, and the selection of the site for a request.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use underpass_http::request::request_line::split_port;

/// A host name of a site: `example.org`, `*.example.org` for every name below it, or an address
/// (`192.0.2.1`, `[2001:db8::1]`). Without a port; non-ASCII names in punycode.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq)]
#[serde(try_from = "String")]
pub struct HostName(String);

/// The limits of RFC 1035, section 2.3.4.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

impl HostName {
    /// Checks a name and converts it to lower case.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn parse(name: &str) -> Result<HostName, String> {
        let lower = name.to_ascii_lowercase();
        let plain = lower.strip_suffix('.').unwrap_or(&lower);
        if let Some(why) = fault(plain.strip_prefix("*.").unwrap_or(plain)) {
            return Err(format!("the host name {name:?} {why}"));
        }
        Ok(HostName(plain.to_owned()))
    }

    /// Returns the name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the first mistake in a name.
fn fault(name: &str) -> Option<&'static str> {
    if let Some(address) = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let right = address.parse::<std::net::Ipv6Addr>().is_ok();
        return (!right).then_some("is not an IPv6 address");
    }
    if !name.is_ascii() {
        return Some("is not ASCII; write it in punycode (xn--…), as browsers send it");
    }
    if name.contains(':') {
        return Some("has a port; a site answers on all ports of the server");
    }
    if name.contains('*') {
        return Some("contains a `*`, which is allowed only as a leading `*.`");
    }
    let label = |label: &str| {
        let right = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(right)
    };
    let right = name.len() <= NAME_BYTES_MAX && name.split('.').all(label);
    (!right)
        .then_some("has a label that is empty, too long, or not of letters, digits, `-` and `_`")
}

impl PartialEq<&str> for HostName {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All names of all sites, each with the number of its site.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    exact: HashMap<Vec<u8>, usize>,
    /// The suffixes of wildcard names, such as `.example.org`, the longest first.
    endings: Vec<(Vec<u8>, usize)>,
}

impl HostNames {
    /// Reads the names of every site. The error is a name that two sites have.
    pub(crate) fn new<'n>(
        sites: impl IntoIterator<Item = &'n [HostName]>,
    ) -> Result<HostNames, HostName> {
        let mut names = HostNames::default();
        for (number, site) in sites.into_iter().enumerate() {
            for name in site {
                if !names.add(name, number) {
                    return Err(name.clone());
                }
            }
        }
        names
            .endings
            .sort_by_key(|(ending, _)| std::cmp::Reverse(ending.len()));
        Ok(names)
    }

    /// Adds a name; returns whether it was free.
    fn add(&mut self, name: &HostName, number: usize) -> bool {
        match name.0.strip_prefix('*') {
            None => self
                .exact
                .insert(name.0.clone().into_bytes(), number)
                .is_none(),
            Some(ending) => {
                let ending = ending.as_bytes().to_vec();
                let free = self.endings.iter().all(|(taken, _)| *taken != ending);
                self.endings.push((ending, number));
                free
            }
        }
    }

    /// Returns the number of the site for an authority: by exact name, else the longest suffix,
    /// else the first site. Port, case and a trailing dot are ignored.
    pub(crate) fn number_of(&self, authority: Option<&[u8]>) -> usize {
        if self.exact.is_empty() && self.endings.is_empty() {
            return 0;
        }
        let (name, _port) = split_port(authority.unwrap_or_default());
        let name = name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase();
        if let Some(number) = self.exact.get(&name) {
            return *number;
        }
        let fits = |ending: &[u8]| name.len() > ending.len() && name.ends_with(ending);
        let ending = self.endings.iter().find(|(ending, _)| fits(ending));
        ending.map_or(0, |(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for right in [
            "a",
            "Example.ORG",
            "*.example.org",
            "xn--bcher-kva.example",
            "[::1]",
            "a.",
        ] {
            assert!(HostName::parse(right).is_ok(), "{right}");
        }
        for (wrong, why) in [
            ("", "empty"),
            ("a:80", "port"),
            ("a..b", "empty"),
            ("*", "`*.`"),
            ("a.*.b", "`*.`"),
            ("*a.b", "`*.`"),
            ("bücher.example", "xn--"),
            ("[::z]", "IPv6"),
            ("a/b", "letters"),
        ] {
            let said = HostName::parse(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn an_exact_name_beats_the_longest_ending_beats_the_first_site() {
        let names = |list: &[&str]| -> Vec<HostName> {
            list.iter()
                .map(|name| HostName::parse(name).unwrap())
                .collect()
        };
        let sites = [
            names(&["first.example"]),
            names(&["*.example.org"]),
            names(&["*.a.example.org", "b.example.org", "[::1]"]),
        ];
        let names = HostNames::new(sites.iter().map(Vec::as_slice)).unwrap();
        for (authority, number) in [
            ("first.example", 0),
            ("other.example", 0),
            ("x.example.org", 1),
            ("y.x.example.org:8080", 1),
            ("example.org", 0),
            ("X.A.Example.Org.", 2),
            ("a.example.org", 1),
            (".a.example.org", 1),
            ("b.example.org:1", 2),
            ("[::1]:80", 2),
            ("xexample.org", 0),
        ] {
            assert_eq!(
                names.number_of(Some(authority.as_bytes())),
                number,
                "{authority}"
            );
        }
        assert_eq!(names.number_of(None), 0);
        for (name, authority) in [("a.example", "A.example"), ("*.example", "b.example")] {
            let sites = [vec![], vec![HostName::parse(name).unwrap()]];
            let names = HostNames::new(sites.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(names.number_of(Some(authority.as_bytes())), 1, "{name}");
        }
    }

    #[test]
    fn a_name_has_one_site() {
        for name in ["a.example", "*.a.example"] {
            let site = [HostName::parse(name).unwrap()];
            let twice = HostNames::new([&site[..], &site[..]]).unwrap_err();
            assert_eq!(twice, name);
            assert_eq!(twice.as_str(), name);
            assert_ne!(twice, "b.example");
        }
    }
}
