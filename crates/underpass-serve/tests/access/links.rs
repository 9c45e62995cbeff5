//! Links and tokens: their formats, keys and expiry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_serve::{AccessOptions, new_token, signed_link};
use underpass_testkit::{HttpResponse, wait_until};

use super::{AccessFiles, basic, bearer, support::Server};

const RULES: &str = "[[site.access.rule]]\nallow = ['links', 'tokens']\n";

/// 2100-01-01T00:00:00Z
const FAR: u64 = 4_102_444_800;

/// Links valid until [`FAR`], as signed by OpenSSL with a key of forty times `k`:
///
/// ```sh
/// printf 'underpass-link-1\nGET\n4102444800\n/drop/acme/' |
///     openssl dgst -sha256 -hmac kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk -binary |
///     basenc --base64url | tr -d =
/// ```
const LINKS: [(&str, &str); 3] = [
    (
        "/drop/acme/report.pdf",
        "?signed=4102444800.file.1kl42r5Fm2EKGkczoMAys51b4BMvMtm_ZPWBAntoO2I",
    ),
    (
        "/drop/acme/",
        "?signed=4102444800.2._gfR0ddBbqdpgVre7ItbEDkM0JYKwfd7BsYj92p7F90",
    ),
    // The signature covers the decoded path.
    (
        "/%C3%BC%20x",
        "?signed=4102444800.file.OQBqmqKYWHfahChytLq592BbEqa-UeQ6nc09U3KjlUw",
    ),
];

#[test]
fn links_that_were_handed_out_stay_what_they_are() {
    let files = AccessFiles::new();
    let server = files.server("", RULES);
    server.write("drop/acme/report.pdf", "report");
    server.write("\u{fc} x", "x");
    let access = &server.options().sites[0].access;
    let expires = UNIX_EPOCH + Duration::from_secs(FAR);
    for (path, query) in LINKS {
        let link = format!("{path}{query}");
        assert_eq!(signed_link(access, path, expires).unwrap(), link);
        assert_eq!(server.get(&link).status, 200, "{link}");
    }
    let (_, folder) = LINKS[1];
    let within = server.get(&format!("/drop/acme/report.pdf{folder}"));
    assert_eq!(within.text(), "report");
}

#[test]
fn the_first_key_signs_and_all_verify() {
    let files = AccessFiles::new();
    files.write("old", &"o".repeat(40));
    let path = |name: &str| files.path(name).display().to_string();
    let site = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| format!("'{}'", path(key))).collect();
        format!("[site.access]\nlink-keys = [{}]\n", keys.join(", "))
    };
    let expires = SystemTime::now() + Duration::from_secs(600);
    let signed = |keys: &[&str]| {
        let link_keys = keys.iter().map(|key| files.path(key)).collect();
        let access = AccessOptions {
            link_keys,
            ..AccessOptions::default()
        };
        signed_link(&access, "/f", expires).unwrap()
    };
    let (new, old) = (signed(&["key"]), signed(&["old"]));
    assert_ne!(new, old);
    assert_eq!(signed(&["key", "old"]), new);
    assert_eq!(signed(&["old", "key"]), old);
    for (keys, by_new, by_old) in [
        (&["key", "old"][..], 200, 200),
        (&["old", "key"], 200, 200),
        (&["key"], 200, 403),
        (&["old"], 403, 200),
    ] {
        let server = Server::configured(&site(keys));
        server.write("f", "f");
        let statuses = [&new, &old].map(|link| server.get(link).status);
        assert_eq!(statuses, [by_new, by_old], "{keys:?}");
    }
}

/// Asks until something has expired. A request answered before `expires` must be granted, one sent
/// at that time or later must not.
fn expires_at(expires: SystemTime, mut ask: impl FnMut() -> HttpResponse) -> HttpResponse {
    let mut last = None;
    wait_until("the end of its time", || {
        let asked = SystemTime::now();
        let response = ask();
        if SystemTime::now() < expires {
            assert_eq!(response.status, 200);
        } else if asked >= expires {
            assert_ne!(response.status, 200);
            last = Some(response);
        }
        last.is_some()
    });
    last.unwrap()
}

/// Returns a whole second that starts soon.
fn soon() -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    UNIX_EPOCH + Duration::from_secs(now.as_secs() + 2)
}

#[test]
fn a_link_is_valid_until_the_second_that_it_names_begins() {
    let files = AccessFiles::new();
    let server = files.server("", RULES);
    server.write("f", "f");
    let access = &server.options().sites[0].access;
    let expires = soon();
    let link = signed_link(access, "/f", expires).unwrap();
    let refused = expires_at(expires, || server.get(&link));
    assert_eq!(refused.status, 401, "a token could help");
    assert!(refused.text().contains("this link has expired"));
    let at = |seconds: i64| {
        let now = SystemTime::now();
        let after = Duration::from_secs(seconds.unsigned_abs());
        let expires = if seconds < 0 {
            now - after
        } else {
            now + after
        };
        server
            .get(&signed_link(access, "/f", expires).unwrap())
            .status
    };
    assert_eq!([at(-1), at(60)], [401, 200]);
}

#[test]
fn a_token_is_valid_until_its_time() {
    let files = AccessFiles::new();
    let expires = soon();
    let made = new_token("ci", Some(expires)).unwrap();
    let other = new_token("ci", None).unwrap();
    files.write("tokens", &format!("{}\n{}\n", made.line, other.line));
    let server = files.server("", RULES);
    server.write("f", "f");
    // Expired credentials are not remembered longer, not even as a password.
    for shown in [bearer(&made.token), basic("git", &made.token)] {
        let refused = expires_at(expires, || server.get_with("/f", &shown));
        assert_eq!(refused.status, 401);
        assert!(refused.head.contains("WWW-Authenticate: Bearer"));
    }
    let other = server.get_with("/f", &bearer(&other.token));
    assert_eq!(other.status, 200, "another one of this name");
}
