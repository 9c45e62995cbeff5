//! Cookies of signed folders: what they allow and what they do not allow.

use std::time::{Duration, SystemTime};

use underpass_net::{Address, Forwarded};
use underpass_serve::{AccessOptions, HttpListen, ServerOptions, signed_link};
use underpass_testkit::{HttpClient, HttpResponse, wait_until};

use super::tls::{Authority, connect, serve};
use super::{AccessFiles, basic, support::Server};

const ON: &str = "link-cookies = true\n";
const LINKS: &str = "[[site.access.rule]]\nallow = ['links', 'user:anna']\n";

/// Starts a site with a folder that has a page and a playlist, and other folders.
fn server(files: &AccessFiles, access: &str) -> Server {
    let server = files.server("", &format!("{access}{LINKS}"));
    for name in ["index.html", "style.css", "live.m3u8", "seg1.ts", "a/b/f"] {
        server.write(format!("drop/acme/{name}"), name);
    }
    for name in [
        "drop/f",
        "drop/acme2/f",
        "drop/list/f",
        "drop/list/sub/f",
        "drop/a;b/f",
        "x",
    ] {
        server.write(name, name);
    }
    server
}

/// Returns the `Cookie` field that a client sends back, and the attributes of the cookie.
fn cookie(response: &HttpResponse) -> Option<(String, String)> {
    let (value, attributes) = response.field("set-cookie")?.split_once("; ")?;
    Some((format!("Cookie: {value}"), attributes.to_owned()))
}

fn cookie_of(server: &Server, link: &str) -> String {
    cookie(&server.get(link)).unwrap().0
}

/// Returns a link to `path` with the signature of a parent folder.
fn link_within(files: &AccessFiles, folder: &str, path: &str) -> String {
    let signed = files.signed(folder);
    format!("{path}?{}", signed.split_once('?').unwrap().1)
}

#[test]
fn a_page_and_a_playlist_get_their_parts_by_the_cookie_of_their_folder() {
    let files = AccessFiles::new();
    let server = server(&files, ON);
    let folder = files.signed("/drop/acme/");
    for (link, body) in [
        (folder.clone(), "index.html"),
        (
            link_within(&files, "/drop/acme/", "/drop/acme/live.m3u8"),
            "live.m3u8",
        ),
    ] {
        let first = server.get(&link);
        assert_eq!(first.text(), body);
        assert_eq!(first.field("cache-control"), Some("private"));
        assert_eq!(first.field("vary"), Some("Authorization, Cookie"));
        let (cookie, attributes) = cookie(&first).unwrap();
        let signature = link.split("signed=").nth(1).unwrap();
        assert_eq!(cookie, format!("Cookie: underpass-signed={signature}"));
        let age = attributes
            .strip_prefix("Path=/drop/acme/; Max-Age=")
            .unwrap();
        let (age, rest) = age.split_once("; ").unwrap();
        assert_eq!(rest, "HttpOnly; SameSite=Lax");
        assert!((3500..=3600).contains(&age.parse().unwrap()), "{age}");
        for part in [
            "style.css",
            "seg1.ts",
            "a/b/f",
            "./style.css",
            "a/../seg1.ts",
            "%73eg1.ts",
        ] {
            let path = format!("/drop/acme/{part}");
            assert_eq!(server.get(&path).status, 401, "{path}");
            let part = server.get_with(&path, &cookie);
            assert_eq!(part.status, 200, "{path}");
            assert_eq!(part.field("cache-control"), Some("private"));
            assert_eq!(part.field("set-cookie"), None, "only a link sets it");
        }
        let archive = server.get_with("/drop/acme/a/?download=tar", &cookie);
        assert_eq!(archive.status, 200);
        let in_archive = super::support::find(&archive.body, b"a/b/f");
        assert!(in_archive.is_some());
    }
}

#[test]
fn every_granted_response_to_the_link_sets_the_cookie() {
    let files = AccessFiles::new();
    let server = server(&files, ON);
    let link = link_within(&files, "/drop/acme/", "/drop/acme/seg1.ts");
    let tag = server.get(&link).field("etag").unwrap().to_owned();
    let ask = |method: &str, target: &str, fields: &str| {
        let mut client = server.connect();
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"
        ));
        client.try_response(method).unwrap()
    };
    let missing = link.replace("seg1", "seg9");
    let subfolder = link.replace("seg1.ts", "a/b");
    let absolute = format!("http://a{link}");
    for (method, target, fields, status, is_set) in [
        ("GET", &link, "X: y", 200, true),
        ("GET", &absolute, "X: y", 200, true),
        ("HEAD", &link, "X: y", 200, true),
        ("GET", &link, &format!("If-None-Match: {tag}"), 304, true),
        ("GET", &link, "Range: bytes=0-1", 206, true),
        ("GET", &link, "Range: bytes=99-", 416, false),
        ("GET", &subfolder, "X: y", 301, true),
        ("GET", &missing, "X: y", 404, false),
        ("POST", &link, "X: y", 405, false),
        ("OPTIONS", &link, "X: y", 204, false),
    ] {
        let response = ask(method, target, fields);
        let what = format!("{method} {target} {fields}");
        assert_eq!(response.status, status, "{what}");
        assert_eq!(cookie(&response).is_some(), is_set, "{what}");
    }
    // The cookie allows the same methods and conditions.
    let cookie = cookie_of(&server, &link);
    let target = "/drop/acme/seg1.ts".to_owned();
    let matching = format!("{cookie}\r\nIf-None-Match: {tag}");
    assert_eq!(ask("HEAD", &target, &cookie).status, 200);
    assert_eq!(ask("GET", &target, &matching).status, 304);
    assert_eq!(ask("POST", &target, &cookie).status, 405);
}

#[test]
fn a_cookie_is_worth_what_its_link_is_worth() {
    let files = AccessFiles::new();
    files.write("other", &"o".repeat(40));
    let server = server(&files, ON);
    let cookie = cookie_of(&server, &files.signed("/drop/acme/"));
    for path in [
        "/drop/acme2/f",
        "/drop/acme",
        "/drop/f",
        "/drop/",
        "/x",
        "/drop/acme/../f",
        "/drop/acme/..%2Ff",
        "/drop/acme%2F..%2Ff",
        "/drop/acme/%2e%2e/acme2/f",
        "/drop/acme%2f%2e%2e%2facme2%2ff",
    ] {
        assert_eq!(server.get_with(path, &cookie).status, 401, "{path}");
    }
    let encoded = server.get_with("/drop%2Facme%2Fstyle.css", &cookie);
    assert_eq!(encoded.status, 200, "the same name, as for the link");
    let asked = |cookie: &str| server.get_with("/drop/acme/style.css", cookie).status;
    assert_eq!(asked(&cookie), 200);
    let value = cookie.strip_prefix("Cookie: underpass-signed=").unwrap();
    let [expires, depth, mac] = value.split('.').collect::<Vec<_>>()[..] else {
        panic!("{value}")
    };
    let other_key = AccessOptions {
        link_keys: vec![files.path("other")],
        ..AccessOptions::default()
    };
    let later = SystemTime::now() + Duration::from_secs(600);
    let foreign = signed_link(&other_key, "/drop/acme/", later).unwrap();
    let foreign = foreign.split("signed=").nth(1).unwrap().to_owned();
    let file = files.signed("/drop/acme/style.css");
    let file = file.split("signed=").nth(1).unwrap().to_owned();
    for forged in [
        format!("1{expires}.{depth}.{mac}"),
        format!("{expires}.1.{mac}"),
        format!("{expires}.0.{mac}"),
        format!("{expires}.file.{mac}"),
        format!("{expires}.{depth}.{}", mac.to_lowercase()),
        foreign,
        file,
        String::new(),
        "\u{fc}".repeat(300),
    ] {
        assert_eq!(
            asked(&format!("Cookie: underpass-signed={forged}")),
            401,
            "{forged}"
        );
        // A valid one is found among them, within limits.
        let forged = format!("underpass-signed={forged}; ");
        let among = |count: usize| {
            asked(&format!(
                "Cookie: {}underpass-signed={value}",
                forged.repeat(count)
            ))
        };
        assert_eq!([among(7), among(8)], [200, 401], "{forged}");
    }
    let two_fields = format!("Cookie: a=b\r\n{cookie}");
    assert_eq!(asked(&two_fields), 200);
    // A removed key verifies no cookie.
    files.write("key", &"n".repeat(40));
    wait_until("the end of the key", || asked(&cookie) == 401);
}

#[test]
fn a_cookie_ends_with_its_link() {
    let files = AccessFiles::new();
    let server = server(&files, ON);
    let access = &server.options().sites[0].access;
    let link_for = |seconds: u64| {
        let expires = SystemTime::now() + Duration::from_secs(seconds);
        signed_link(access, "/drop/acme/", expires).unwrap()
    };
    // The first link that does not expire before it arrives.
    let mut lifetimes = (1..6).map(|power| 1 << power);
    let (lifetime, (shown, attributes)) = lifetimes
        .find_map(|seconds| Some((seconds, cookie(&server.get(&link_for(seconds)))?)))
        .unwrap();
    let age = attributes.split("Max-Age=").nth(1).unwrap();
    let age: u64 = age.split(';').next().unwrap().parse().unwrap();
    assert!(age < lifetime, "{age}");
    let ask = || server.get_with("/drop/acme/seg1.ts", &shown);
    wait_until("the end of its time", || ask().status == 401);
    assert!(ask().text().contains("this link has expired"));
    let link = link_for(30 * 24 * 3600);
    let (_, attributes) = cookie(&server.get(&link)).unwrap();
    assert!(attributes.contains("; Max-Age=43200; "), "{attributes}");
}

#[test]
fn there_are_cookies_where_they_are_chosen_and_useful() {
    let files = AccessFiles::new();
    let off = server(&files, "");
    let on = server(&files, ON);
    let link = files.signed("/drop/acme/");
    let shown = cookie_of(&on, &link);
    assert_eq!(off.get(&link).field("set-cookie"), None);
    assert_eq!(off.get(&link).field("vary"), Some("Authorization"));
    assert_eq!(off.get_with("/drop/acme/seg1.ts", &shown).status, 401);
    // A link to a file has no parts.
    let file = on.get(&files.signed("/drop/acme/seg1.ts"));
    assert_eq!((file.status, file.field("set-cookie")), (200, None));
    // A shared cache may store public responses, with all their fields.
    let rules = "[[site.access.rule]]\npaths = ['/drop/acme/seg1.ts']\nallow = ['everyone']\n";
    let open = server(&files, &format!("{ON}{rules}"));
    let part = open.get(&link_within(&files, "/drop/acme/", "/drop/acme/seg1.ts"));
    assert_eq!((part.status, part.field("set-cookie")), (200, None));
    // A wrong signature does not replace the valid cookie.
    let wrong = on.get_with("/drop/acme/?signed=1.2.x", &shown);
    assert_eq!((wrong.status, wrong.field("set-cookie")), (200, None));
    let wrong = link_within(&files, "/drop/acme2/", "/drop/acme/");
    let wrong = on.get_with(&wrong, &shown);
    assert_eq!((wrong.status, wrong.field("set-cookie")), (200, None));
    // Rules still decide: this one allows no links.
    let rules = "[[site.access.rule]]\npaths = ['/drop/acme/seg1.ts']\nallow = ['user:anna']\n";
    let closed = server(&files, &format!("{ON}conceal = true\n{rules}"));
    assert_eq!(closed.get_with("/drop/acme/seg1.ts", &shown).status, 404);
    assert_eq!(closed.get_with("/drop/acme/style.css", &shown).status, 200);
    let without_keys = ServerOptions::parse("[[site]]\n[site.access]\nlink-cookies = true\n");
    let wrong = underpass_serve::check(&without_keys.unwrap());
    assert!(
        wrong
            .iter()
            .any(|error| error.to_string().contains("needs `link-keys`"))
    );
}

#[test]
fn the_path_of_a_cookie_is_spelt_as_the_browser_spells_it() {
    let files = AccessFiles::new();
    let server = server(&files, ON);
    for (spelt, expected) in [
        ("/drop/acme/", Some("/drop/acme/")),
        ("/drop/%61cme/", Some("/drop/%61cme/")),
        ("//drop/acme/a/b/f", Some("//drop/acme/")),
        ("/drop%2Facme/", Some("/drop%2Facme/")),
        ("/drop%2Facme%2F", None),
    ] {
        let answer = server.get(&link_within(&files, "/drop/acme/", spelt));
        assert_eq!(answer.status, 200, "{spelt}");
        let path = cookie(&answer).map(|(_, attributes)| attributes);
        let expected = expected.map(|path| format!("Path={path}; Max-Age="));
        match (path, expected) {
            (Some(path), Some(expected)) => assert!(path.starts_with(&expected), "{path}"),
            (path, expected) => assert_eq!(path, expected, "{spelt}"),
        }
    }
    // A semicolon would end the attribute: links encode it.
    let link = files.signed("/drop/a;b/");
    assert!(link.starts_with("/drop/a%3Bb/?"), "{link}");
    assert!(
        cookie(&server.get(&link))
            .unwrap()
            .1
            .starts_with("Path=/drop/a%3Bb/;")
    );
    let raw = server.get(&link.replace("%3B", ";"));
    assert_eq!((raw.status, cookie(&raw)), (200, None));
}

#[test]
fn a_cookie_is_secure_where_the_client_speaks_https() {
    let files = AccessFiles::new();
    let link = files.signed("/drop/acme/");
    let is_secure = |server: &Server, fields: &str| {
        let (_, attributes) = cookie(&server.get_with(&link, fields)).unwrap();
        attributes.ends_with("; Secure")
    };
    let behind = |forwarded: Forwarded, trusted: &str| {
        let text = format!("[[site]]\n{}", files.site("", &format!("{ON}{LINKS}")));
        let access = ServerOptions::parse(&text).unwrap().sites.remove(0).access;
        let server = Server::with(|options| {
            options.sites[0].access = access;
            options.connections.proxy.forwarded = forwarded;
            options.connections.proxy.trusted = vec![trusted.parse().unwrap()];
        });
        server.write("drop/acme/index.html", "page");
        server
    };
    let https = "X-Forwarded-Proto: https";
    let rfc = "Forwarded: for=192.0.2.7;proto=https";
    let nearest = "Forwarded: for=6.6.6.6;proto=https, for=192.0.2.7;proto=http";
    for (forwarded, trusted, fields, expected) in [
        (Forwarded::Off, "127.0.0.1", https, false),
        (Forwarded::XForwardedFor, "127.0.0.1", https, true),
        (
            Forwarded::XForwardedFor,
            "127.0.0.1",
            "X-Forwarded-Proto: HTTPS, http",
            true,
        ),
        (
            Forwarded::XForwardedFor,
            "127.0.0.1",
            "X-Forwarded-Proto: http",
            false,
        ),
        (Forwarded::XForwardedFor, "127.0.0.1", rfc, false),
        (Forwarded::XForwardedFor, "192.0.2.1", https, false),
        (Forwarded::Forwarded, "127.0.0.1", rfc, true),
        (
            Forwarded::Forwarded,
            "127.0.0.1",
            "Forwarded: proto=\"https\"",
            true,
        ),
        (Forwarded::Forwarded, "127.0.0.1", nearest, false),
        (Forwarded::Forwarded, "127.0.0.1", https, false),
        (Forwarded::Forwarded, "192.0.2.1", rfc, false),
    ] {
        let server = behind(forwarded, trusted);
        assert_eq!(is_secure(&server, fields), expected, "{trusted} {fields}");
    }
    let authority = Authority::new();
    let text = format!("[[site]]\n{}", files.site("", &format!("{ON}{LINKS}")));
    let access = ServerOptions::parse(&text).unwrap().sites.remove(0).access;
    let server = serve(&authority, |options| {
        options.sites[0].access = access;
        options
            .listen
            .extend(HttpListen::resolve("http:127.0.0.2:0", None).unwrap());
    });
    server.write("drop/acme/index.html", "page");
    let config = authority.client().config();
    let addresses = server.running().addresses();
    let [Address::Tcp(https), Address::Tcp(http)] = addresses[..] else {
        panic!("{addresses:?}");
    };
    let first = connect(&config, https, "localhost").get(&link);
    assert!(cookie(&first).unwrap().1.ends_with("; Secure"));
    // A redirected request gets the cookie from the HTTPS response.
    let redirected = HttpClient::connect(http).get(&link);
    assert_eq!((redirected.status, cookie(&redirected)), (308, None));
}

#[test]
fn a_page_of_a_signed_folder_does_not_lead_above_it() {
    let files = AccessFiles::new();
    let server = server(&files, ON);
    let trail = |page: &HttpResponse| -> Vec<String> {
        let text = page.text();
        let links = text.split("href=\"").skip(1);
        let links = links.map(|link| link.split('"').next().unwrap());
        let up = links.filter(|link| link.starts_with("../"));
        let mut up: Vec<_> = up
            .map(|link| link.split('?').next().unwrap().to_owned())
            .collect();
        up.sort();
        up
    };
    let link = files.signed("/drop/list/");
    let within = link_within(&files, "/drop/list/", "/drop/list/sub/");
    let shown = cookie_of(&server, &link);
    let (wide, narrow) = (
        cookie_of(&server, &files.signed("/drop/")),
        shown.strip_prefix("Cookie: ").unwrap(),
    );
    let nested = format!(
        "Cookie: {narrow}; {}",
        wide.strip_prefix("Cookie: ").unwrap()
    );
    let anna = basic("anna", "anna");
    let root = link_within(&files, "/", "/drop/list/");
    for (target, fields, expected) in [
        (&link[..], "X: y", &[][..]),
        (&within, "X: y", &["../", "../"]),
        ("/drop/list/", &shown, &[]),
        ("/drop/list/sub/", &shown, &["../", "../"]),
        ("/drop/list/sub/", &nested, &["../", "../", "../../"]),
        (&root, "X: y", &["../", "../", "../../"]),
        ("/drop/list/", &anna, &["../", "../", "../../"]),
        (
            "/drop/list/sub/",
            &anna,
            &["../", "../", "../../", "../../../"],
        ),
    ] {
        let page = server.get_with(target, fields);
        assert_eq!(page.status, 200, "{target}");
        assert_eq!(trail(&page), expected, "{target} {fields}");
        let has_names = page.text().contains("<bdi>drop</bdi>");
        assert_eq!(has_names, expected.len() > 2, "{target} {fields}");
    }
    // Links on the page have the signature of its request, if any.
    let rows = |page: HttpResponse| page.text().contains("href=\"./sub/?signed=");
    assert!(rows(server.get(&link)) && !rows(server.get_with("/drop/list/", &shown)));
}
