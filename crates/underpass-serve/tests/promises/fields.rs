//! Promises about arbitrary values of the fields for content negotiation and proxies, and about
//! arbitrary queries.

use std::net::IpAddr;

use percent_encoding::percent_decode;
use underpass_http::fields::coding::{Acceptable, Coding};
use underpass_http::fields::digest::HashAlgorithm;
use underpass_net::{Forwarded, Proxies};

use crate::access::forwarded::{ClientPlace, client};
use crate::body::query::{ArchiveFormat, Download, ListingFormat, Query};
use crate::body::query::{SortDirection, SortKey};

/// Of each parameter the first meaningful value counts, regardless of the rest; unknown parameters
/// change nothing.
pub fn query(data: &[u8]) {
    let query = Query::parse(data);
    let pairs: Vec<(&[u8], &[u8])> = data
        .split(|&byte| byte == b'&')
        .map(|pair| {
            let mut halves = pair.splitn(2, |&byte| byte == b'=');
            let name = halves.next().unwrap_or_default();
            (name, halves.next().unwrap_or_default())
        })
        .collect();
    let values = |name: &'static [u8]| {
        let named = pairs.iter().filter(move |(each, _)| *each == name);
        named.map(|(_, value)| *value)
    };
    let order = query.order();
    assert_eq!(
        order.key,
        known(values(b"sort"), SortKey::ALL.map(|key| (key.name(), key))).unwrap_or(SortKey::Name)
    );
    let directions = [SortDirection::Ascending, SortDirection::Descending];
    let direction = known(values(b"order"), directions.map(|each| (each.name(), each)));
    assert_eq!(
        order.direction,
        direction.unwrap_or(SortDirection::Ascending)
    );
    let formats = [("html", ListingFormat::Html), ("json", ListingFormat::Json)];
    assert_eq!(query.format, known(values(b"format"), formats));
    let hashes = [
        ("sha256", HashAlgorithm::Sha256),
        ("blake3", HashAlgorithm::Blake3),
    ];
    assert_eq!(query.hash, known(values(b"hash"), hashes));
    let archives = [
        ("tar", ArchiveFormat::Plain),
        ("tar.zst", ArchiveFormat::Zstd),
    ];
    let download = values(b"download").next().map(|value| {
        known([value].into_iter(), archives).map_or(Download::File, Download::Archive)
    });
    assert_eq!(query.download, download);
    let search = values(b"search").find(|value| !value.is_empty());
    assert_eq!(query.search, plain_words(search.unwrap_or_default()));
    for (before, after) in [
        (&b"v=3f2a&"[..], &b""[..]),
        (b"", b"&Sort=size"),
        (b"&", b"&="),
    ] {
        assert_eq!(Query::parse(&[before, data, after].concat()), query);
    }
}

/// Returns the first value that has a meaning.
fn known<'v, T, const N: usize>(
    mut values: impl Iterator<Item = &'v [u8]>,
    meanings: [(&str, T); N],
) -> Option<T>
where
    T: Copy,
{
    let meaning = |value: &[u8]| {
        let mut all = meanings.iter();
        all.find(|(name, _)| name.as_bytes() == value)
            .map(|(_, meaning)| *meaning)
    };
    values.find_map(meaning)
}

/// Decodes a form value: plus signs are blanks, other characters may be escaped.
fn plain_words(value: &[u8]) -> Vec<u8> {
    let blank = |&byte: &u8| if byte == b'+' { b' ' } else { byte };
    let blanks: Vec<u8> = value.iter().map(blank).collect();
    percent_decode(&blanks).collect()
}

/// Nothing sent by a client overrides addresses added by its proxy; untrusted peers are ignored;
/// and a list with balanced quotes gives the same result when parsed from the left.
pub fn forwarded(data: &[u8]) {
    let proxy = IpAddr::from([10, 0, 0, 1]);
    let outside = IpAddr::from([192, 0, 2, 7]);
    let trusted = ["10.0.0.0/8", "::1", "fd00::/8"];
    for (field, added) in [
        (Forwarded::XForwardedFor, &b", 192.0.2.7"[..]),
        (Forwarded::Forwarded, b", by=10.0.0.1;For=\"192.0.2.7:80\""),
    ] {
        let proxies = Proxies {
            trusted: trusted
                .map(|network| network.parse().expect("right"))
                .to_vec(),
            forwarded: field,
            ..Proxies::default()
        };
        let of = |peer, value: &[u8]| client(Some(peer), Some(value), &proxies);
        let place = ClientPlace::Address(outside);
        assert_eq!(of(proxy, &[data, added].concat()), place);
        assert_eq!(of(outside, data), place);
        let place = of(proxy, data);
        let named = place.nearest().expect("at least the peer");
        assert_eq!(named, named.to_canonical());
        if data.iter().filter(|&&byte| byte == b'"').count() % 2 == 0 {
            assert_eq!(named, plain_client(proxy, data, &proxies), "{field:?}");
        }
        if !proxies.trust(named) {
            // The same client is found after any number of trusted proxies.
            let more = match field {
                Forwarded::XForwardedFor => &b",10.9.9.9"[..],
                _ => b", for=\"[fd00::1]:443\"",
            };
            assert_eq!(of(proxy, &[data, more, more].concat()), place);
        }
    }
}

/// Parses the whole list from the left, then follows it from its end while the authors are trusted.
fn plain_client(peer: IpAddr, list: &[u8], proxies: &Proxies) -> IpAddr {
    let mut members: Vec<Vec<u8>> = vec![Vec::new()];
    let mut is_quoted = false;
    for &byte in list {
        is_quoted ^= byte == b'"';
        match byte {
            b',' if !is_quoted => members.push(Vec::new()),
            byte => members.last_mut().expect("one at least").push(byte),
        }
    }
    let mut who = peer;
    for member in members.iter().rev().map(|member| member.trim_ascii()) {
        if member.is_empty() {
            continue;
        }
        let named = match proxies.forwarded {
            Forwarded::XForwardedFor => plain_address(member),
            _ => plain_for(member),
        };
        match named.filter(|_| proxies.trust(who)) {
            Some(named) => who = named.to_canonical(),
            None => break,
        }
    }
    who
}

/// Returns the only `for` of a member.
fn plain_for(member: &[u8]) -> Option<IpAddr> {
    let mut named = Vec::new();
    for pair in member.split(|&byte| byte == b';') {
        let mut halves = pair.splitn(2, |&byte| byte == b'=');
        let name = halves.next()?.trim_ascii().to_ascii_lowercase();
        if let (b"for", Some(value)) = (&name[..], halves.next()) {
            named.push(value.trim_ascii());
        }
    }
    match named[..] {
        [[b'"', inside @ .., b'"']] => plain_address(inside),
        [[b'"', ..]] => None,
        [value] => plain_address(value),
        _ => None,
    }
}

/// Parses an address after removing a port.
fn plain_address(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?;
    let colons = text.matches(':').count();
    if let Some(inside) = text.strip_prefix('[') {
        let (address, rest) = inside.split_at(inside.find(']')?);
        let is_whole = rest == "]" || rest.starts_with("]:");
        return address.parse().ok().filter(|_| is_whole).map(IpAddr::V6);
    }
    let six = text.parse().ok().filter(|_| colons > 1).map(IpAddr::V6);
    six.or_else(|| text.split(':').next()?.parse().ok().map(IpAddr::V4))
}

/// JSON is sent to a client that prefers it to HTML, or that weights both equally and names it;
/// other types and letter case do not matter.
pub fn accept(data: &[u8]) {
    let chosen = ListingFormat::preferred(Some(data));
    let (json, html) = (
        plain_weight(data, "application/json"),
        plain_weight(data, "text/html"),
    );
    let expected = if json > html {
        ListingFormat::Json
    } else {
        ListingFormat::Html
    };
    assert_eq!(chosen, expected, "{}", data.escape_ascii());
    assert_eq!(
        ListingFormat::preferred(Some(&data.to_ascii_uppercase())),
        chosen
    );
    for other in [&b",image/png;q=0.5"[..], b", text", b",,/"] {
        assert_eq!(
            ListingFormat::preferred(Some(&[data, other].concat())),
            chosen
        );
    }
}

/// Returns the weight of the most specific range, and its specificity.
fn plain_weight(accept: &[u8], media: &str) -> (u32, usize) {
    let kind = media.split('/').next().unwrap_or_default();
    let forms = ["*/*".to_owned(), format!("{kind}/*"), media.to_owned()];
    for (closeness, form) in forms.iter().enumerate().rev() {
        let weights = accept.split(|&byte| byte == b',').filter_map(|member| {
            let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let is_it = parts.next()?.eq_ignore_ascii_case(form.as_bytes());
            let weight = parts.find(|part| matches!(part, [b'q' | b'Q', b'=', ..]));
            is_it.then(|| weight.map_or(1000, |part| plain_quality(&part[2..]).unwrap_or(0)))
        });
        match weights.max() {
            Some(0) => return (0, 0),
            Some(weight) => return (weight, closeness + 1),
            None => {}
        }
    }
    (0, 0)
}

/// Parses a weight in thousandths, padded to three digits.
fn plain_quality(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(whole, "0" | "1") || digits.len() > 3 || !is_number {
        return None;
    }
    let thousandths = format!("{whole}{digits:0<3}").parse().ok()?;
    (thousandths <= 1000).then_some(thousandths)
}

/// The chosen codings are acceptable to the client, unique, and in its order of preference. The
/// first byte determines the server's order.
pub fn codings(data: &[u8]) {
    let Some((&order, field)) = data.split_first() else {
        return;
    };
    let mut order_of_ours = Coding::ALL.to_vec();
    order_of_ours.rotate_left(usize::from(order) % 3);
    order_of_ours.truncate(3 - usize::from(order >> 4) % 3);
    let acceptable = Acceptable::parse(Some(field));
    let choices: Vec<_> = acceptable.choices(&order_of_ours).collect();
    let last = |names: &[&str]| {
        let members = field.split(|&byte| byte == b',').filter_map(plain_member);
        let mut members = members.rev();
        members
            .find(|(name, _)| names.contains(&&name[..]))
            .map(|(_, weight)| weight)
    };
    let (plain, others) = (last(&["identity"]), last(&["*"]));
    assert_eq!(acceptable.takes_identity(), plain.or(others) != Some(0));
    let names = |coding| match coding {
        Coding::Br => &["br"][..],
        Coding::Zstd => &["zstd"],
        Coding::Gzip => &["gzip", "x-gzip"],
    };
    let weight = |coding| last(names(coding)).or(others).unwrap_or(0);
    let mut expected = order_of_ours;
    expected.retain(|&coding| weight(coding) > 0 && weight(coding) >= plain.unwrap_or(0));
    expected.sort_by_key(|&coding| std::cmp::Reverse(weight(coding)));
    assert_eq!(choices, expected, "{}", field.escape_ascii());
}

/// Returns a member's name in lower case, and its weight.
fn plain_member(member: &[u8]) -> Option<(String, u32)> {
    let parts: Vec<_> = member
        .split(|&byte| byte == b';')
        .map(<[u8]>::trim_ascii)
        .collect();
    let (name, weight) = match parts[..] {
        [name] => (name, 1000),
        [name, [b'q' | b'Q', b'=', weight @ ..]] => (name, plain_quality(weight)?),
        _ => return None,
    };
    let name = std::str::from_utf8(name).ok()?;
    Some((name.to_ascii_lowercase(), weight))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::text;

    const QUERIES: &[&str] = &[
        "sort=", "size", "date", "order=", "asc", "desc", "search=", "a+b", "%25", "%2", "format=",
        "json", "html", "download", "=tar", "=tar.zst", "hash=", "sha256", "blake3", "&", "&", "=",
    ];

    const FORWARDED: &[&str] = &[
        "192.0.2.7",
        "10.0.0.2",
        "::1",
        "fd00::7",
        "2001:db8::1",
        "::ffff:10.0.0.9",
        "[",
        "]",
        ":80",
        ":_port",
        ",",
        ", ",
        ",",
        "\"",
        "\"",
        ";",
        "for=",
        "FOR =",
        "by=",
        "unknown",
        " ",
    ];

    const ACCEPT: &[&str] = &[
        "application/json",
        "application/*",
        "text/html",
        "text/*",
        "*/*",
        "Text/HTML",
        "/",
        ",",
        ",",
        ",",
        ";q=",
        ";q=",
        ";Q=",
        "0",
        "1",
        "0.5",
        "0.57",
        "1.000",
        "1.001",
        "1e-1",
        ";v=1",
    ];

    const CODINGS: &[&str] = &[
        "br", "gzip", "x-gzip", "ZSTD", "identity", "*", ",", ",", ", ", ";q=", "; Q=", "0", "1",
        "0.5", "0.501", "1.0", "0.0001", ";x=y", " ", "deflate",
    ];

    proptest! {
        #[test]
        fn queries(data in text(QUERIES)) {
            super::query(&data);
        }

        #[test]
        fn lists_of_proxies(data in text(FORWARDED)) {
            super::forwarded(&data);
        }

        #[test]
        fn wanted_types(data in text(ACCEPT)) {
            super::accept(&data);
        }

        #[test]
        fn wanted_codings(order in any::<u8>(), field in text(CODINGS)) {
            super::codings(&[&[order], &field[..]].concat());
        }
    }
}
