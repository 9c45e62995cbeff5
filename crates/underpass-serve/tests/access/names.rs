//! No spelling, link, index, copy, error page or archive circumvents a rule.

use std::fs;
use std::os::unix::fs::symlink;

use underpass_testkit::HttpResponse;

use super::{AccessFiles, basic, support::Server};

/// Strings that no response may contain: contents, names, sizes, hashes and dates of denied files.
const SECRETS: [&str; 5] = [
    "the secret content",
    "topsecret",
    "1994",
    "12345",
    "Sun, 06 Nov",
];

/// Starts a site where only anna may read `/private` and every `*.key`.
fn server(files: &AccessFiles) -> Server {
    server_by(files, RULE_SETS[0].1)
}

/// Starts the same site with other rules.
fn server_by(files: &AccessFiles, rules: &str) -> Server {
    let server = files.server(
        "index = ['index.html', 'start.txt']\npretty = true\nhashes = true\ndownload = true\n\
         precompressed = ['gzip', 'br']\ncompress = ['zstd']\nfallback = '/private/topsecret'\n\
         error-pages = {404 = '/private/topsecret', 401 = '/private/topsecret'}\n\
         rewrite = [{from = '/moved/*', to = '/private/*'},\n\
         {from = '/one', to = '/private/topsecret'}]\n\
         redirect = [{from = '/private/old/*', to = '/topsecret/*'}]\n\
         try = [{paths = ['/tried/**'],\n\
         files = ['{path}', '/private{path}', '/private/topsecret']}]\n",
        &format!("{rules}\n[[site.access.rule]]\nallow = ['everyone']\n"),
    );
    let secret = format!("the secret content {}", "x".repeat(12345 - 19));
    for name in [
        "private/topsecret",
        "private/index.html",
        "private/about.html",
        "private/topsecret.gz",
        "private/f/topsecret",
        "open/topsecret.key",
        "open/page.html.key",
        "dir.key/f",
    ] {
        server.write(name, &secret);
    }
    server.write("open/plain.txt", "plain");
    server.write("open/js.key.js", "plain");
    server.write("plain.html", "plain");
    let root = server.site();
    symlink("../private", root.join("open/folder")).unwrap();
    symlink("../private/topsecret", root.join("open/file")).unwrap();
    symlink("file", root.join("open/again")).unwrap();
    symlink("../private/none", root.join("open/dangling")).unwrap();
    symlink("../private/index.html", root.join("open/link.html")).unwrap();
    symlink("../../private/topsecret", root.join("open/d.txt")).unwrap();
    fs::create_dir(root.join("indexed")).unwrap();
    symlink("../private/index.html", root.join("indexed/index.html")).unwrap();
    symlink("../private/topsecret.gz", root.join("open/plain.txt.gz")).unwrap();
    symlink("private", root.join("linked")).unwrap();
    server
}

/// Rules that restrict access to the private files, each in another way, and the status that other
/// clients get for GET and HEAD.
const RULE_SETS: [(&str, &str, [u16; 2]); 7] = [
    (
        "a user",
        "[[site.access.rule]]\npaths = ['/private', '*.key']\nallow = ['user:anna']\n",
        [401, 401],
    ),
    (
        "nobody",
        "[[site.access.rule]]\npaths = ['/private', '*.key']\nallow = []\n",
        [403, 403],
    ),
    (
        "patterns",
        "[[site.access.rule]]\npaths = ['/private', '/private/**', '*.{key,pem}']\n\
         allow = ['tokens']\n",
        [401, 401],
    ),
    (
        "a network",
        "[[site.access.rule]]\npaths = ['/private', '*.key']\nnetworks = ['192.0.2.0/24']\n\
         allow = ['everyone']\n\
         [[site.access.rule]]\npaths = ['/private', '*.key']\nallow = []\n",
        [403, 403],
    ),
    (
        "a network that is denied",
        "[[site.access.rule]]\npaths = ['/private', '*.key']\nnetworks = ['127.0.0.0/8']\n\
         allow = ['links']\n",
        [403, 403],
    ),
    (
        "methods",
        "[[site.access.rule]]\npaths = ['/private', '*.key']\nmethods = ['HEAD']\nallow = []\n\
         [[site.access.rule]]\npaths = ['/private', '*.key']\nmethods = ['GET']\n\
         allow = ['users']\n",
        [401, 403],
    ),
    (
        "concealed",
        "conceal = true\n\
         [[site.access.rule]]\npaths = ['/private', '*.key']\nallow = ['user:anna']\n",
        [404, 404],
    ),
];

/// Every way to request the private files.
const TARGETS: [&str; 53] = [
    "/private/topsecret",
    "/private",
    "/private/",
    "/private/none",
    "/private/f/",
    "/private/f",
    "/private/about",
    "/private/index.html",
    "/private/old/x",
    "//private//topsecret",
    "/./private/./topsecret",
    "/open/../private/topsecret",
    "/private/f/../topsecret",
    "/%70rivate/topsecret",
    "/priv%61te/topsecret",
    "/private%2ftopsecret",
    "/private%2Ff%2F",
    "/%2e/private/topsecret",
    "/open/%2e%2e/private/topsecret",
    "/private/topsecret?download",
    "/private/topsecret?hash=sha256",
    "/private/topsecret?hash=blake3",
    "/private/?download=tar",
    "/private/?download=tar.zst",
    "/private/?format=json",
    "/private/?search=top",
    "/private/topsecret.gz",
    "/open/folder/topsecret",
    "/open/folder/",
    "/open/folder",
    "/open/folder/none",
    "/open/folder/?format=json",
    "/open/folder/?download=tar",
    "/open/file",
    "/open/again",
    "/open/dangling",
    "/open/link.html",
    "/open/link",
    "/indexed/",
    "/linked/topsecret",
    "/linked/f/",
    "/moved/topsecret",
    "/one",
    "/open/topsecret.key",
    "/dir.key/f",
    "/dir.key/",
    "/private/TOPSECRET",
    "/private/F/",
    "/open/FOLDER/../folder/topsecret",
    "/open/folder/?download=tar.zst",
    "/linked/?download=tar.zst",
    "/private?download=tar.zst",
    "/dir.key/?download=tar.zst",
];

/// Names that do not exist, since case matters.
const OTHER_CASES: [&str; 8] = [
    "/PRIVATE/topsecret",
    "/Private/",
    "/PRIVATE",
    "/%50RIVATE/topsecret",
    "/OPEN/folder/topsecret",
    "/open/FILE",
    "/open/topsecret.KEY",
    "/PRIVATE/?download=tar.zst",
];

const FIELDS: [&str; 9] = [
    "X: y",
    "Range: bytes=0-9",
    "Range: bytes=0-9,20-29",
    "Range: bytes=99999-",
    "If-Modified-Since: Mon, 01 Jan 2035 00:00:00 GMT",
    "If-None-Match: *",
    "If-Match: \"x\"",
    "Accept-Encoding: gzip, br, zstd\r\nWant-Repr-Digest: sha-256=9",
    "Accept: application/json",
];

fn tells_nothing(response: &HttpResponse, what: &str) {
    let head = &response.head;
    let body = String::from_utf8_lossy(&response.body);
    for secret in SECRETS {
        assert!(
            !head.contains(secret) && !body.contains(secret),
            "{what}: {secret}\n{head}{body}"
        );
    }
    for name in [
        "etag",
        "last-modified",
        "location",
        "content-range",
        "repr-digest",
    ] {
        assert_eq!(response.field(name), None, "{what}: {name}");
    }
}

fn ask(server: &Server, method: &str, target: &str, fields: &str) -> HttpResponse {
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"
    ));
    client.try_response(method).unwrap()
}

#[test]
fn no_way_of_asking_leads_past_a_rule() {
    let length = |response: &HttpResponse| response.field("content-length").map(str::to_owned);
    for (by, rules, statuses) in RULE_SETS {
        let files = AccessFiles::new();
        let server = server_by(&files, rules);
        for (method, status) in ["GET", "HEAD"].into_iter().zip(statuses) {
            let refused = ask(&server, method, "/private/none", "X: y");
            assert_eq!(refused.status, status, "{by}");
            // A concealed path is redirected like one that does not exist.
            let is_redirected = |target: &str| status == 404 && target == "/private/old/x";
            for target in TARGETS.into_iter().filter(|target| !is_redirected(target)) {
                for fields in FIELDS {
                    let response = ask(&server, method, target, fields);
                    let what = format!("{by}: {method} {target} {fields}");
                    assert_eq!(response.status, status, "{what}");
                    tells_nothing(&response, &what);
                    assert_eq!(length(&response), length(&refused), "{what}");
                }
            }
            for target in OTHER_CASES {
                let response = ask(&server, method, target, "X: y");
                let what = format!("{by}: {method} {target}");
                assert!([status, 404].contains(&response.status), "{what}");
                tells_nothing(&response, &what);
            }
        }
    }
}

#[test]
fn what_stands_in_for_something_else_is_asked_about_too() {
    let files = AccessFiles::new();
    let server = server(&files);
    for target in [
        "/none",
        "/open/none",
        "/open/d.txt",
        "/tried/topsecret",
        "/tried/none",
    ] {
        let response = server.get(target);
        assert!(
            [401, 404].contains(&response.status),
            "{target} {}",
            response.status
        );
        tells_nothing(&response, target);
    }
    // A symbolic link does not count as a precompressed copy, and neither does a denied copy.
    let plain = server.get_with("/open/plain.txt", "Accept-Encoding: gzip");
    assert_eq!((plain.status, &plain.body[..]), (200, &b"plain"[..]));
    let anna = basic("anna", "anna");
    let response = server.get_with("/none", &anna);
    assert!(
        response.text().starts_with("the secret content"),
        "the fallback is for her"
    );
}

#[test]
fn listings_searches_and_archives_leave_out_what_is_denied() {
    let files = AccessFiles::new();
    let server = server(&files);
    for target in [
        "/open/?format=json",
        "/open/?format=html",
        "/open/?search=top&format=json",
        "/open/?sort=size&format=html",
        "/open/?download=tar",
    ] {
        let response = server.get(target);
        assert_eq!(response.status, 200, "{target}");
        let body = String::from_utf8_lossy(&response.body);
        for denied in [
            "topsecret",
            "folder\"",
            "file",
            "again",
            "dangling",
            "link.html",
            ".key\"",
        ] {
            let text = body
                .replace("\"type\":\"file\"", "")
                .replace("class=\"file\"", "");
            let text = text.replace("Download folder", "").replace("\"files\"", "");
            let text = text
                .replace("#files", "")
                .replace("i-file", "")
                .replace("i-folder", "");
            let names: Vec<_> = text.match_indices(denied).collect();
            let named = match target.contains("html") {
                true => text.contains(&format!("href=\"./{}", denied.trim_end_matches('"'))),
                false => !names.is_empty() && denied == "topsecret",
            };
            assert!(!named, "{target}: {denied}");
        }
    }
    let listed = |target: &str, shown: &str| {
        let response = server.get_with(target, shown);
        let listing: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        let entries = listing["entries"].as_array().unwrap();
        let names = entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    let anna = basic("anna", "anna");
    assert_eq!(listed("/open/?format=json", "X: y"), "js.key.js plain.txt");
    assert_eq!(
        listed("/open/?format=json", &anna),
        "folder again file js.key.js link.html page.html.key plain.txt plain.txt.gz topsecret.key"
    );
    let archived = |form: &str, shown: &str| {
        let response = server.get_with(&format!("/open/?download={form}"), shown);
        let body = match form {
            "tar.zst" => zstd::decode_all(&response.body[..]).unwrap(),
            _ => response.body,
        };
        let mut names = Vec::new();
        for entry in tar::Archive::new(&body[..]).entries().unwrap() {
            names.push(entry.unwrap().path().unwrap().display().to_string());
        }
        names.sort();
        names.join(" ")
    };
    for form in ["tar", "tar.zst"] {
        assert_eq!(
            archived(form, "X: y"),
            "open/ open/js.key.js open/plain.txt",
            "{form}"
        );
        assert_eq!(
            archived(form, &anna),
            "open/ open/again open/file open/folder/ open/folder/about.html open/folder/f/ \
             open/folder/f/topsecret open/folder/index.html open/folder/topsecret \
             open/folder/topsecret.gz open/js.key.js open/link.html open/page.html.key \
             open/plain.txt open/plain.txt.gz open/topsecret.key",
            "{form}"
        );
    }
}

#[test]
fn what_was_opened_for_one_is_asked_about_again_for_another() {
    let files = AccessFiles::new();
    let server = server(&files);
    let anna = basic("anna", "anna");
    for target in [
        "/private/topsecret",
        "/open/file",
        "/private/",
        "/moved/topsecret",
    ] {
        for _ in 0..3 {
            assert_eq!(server.get_with(target, &anna).status, 200, "{target}");
            assert_eq!(server.get(target).status, 401, "{target}");
            assert_eq!(
                server.get_with(target, &basic("ben", "ben")).status,
                403,
                "{target}"
            );
        }
    }
}

#[test]
fn what_is_concealed_is_answered_as_what_does_not_exist() {
    let files = AccessFiles::new();
    let server = files.server(
        "fallback = '/app.html'\n\
         rewrite = [{from = '/one/*', to = '/private/*'}, {from = '/page', to = '/app.html'}]\n\
         redirect = [{from = '/private/old/*', to = '/app.html'}]\n\
         try = [{paths = ['/tried/**'], files = ['/private{path}', '/tried.html']}]\n",
        "conceal = true\n\
         [[site.access.rule]]\npaths = ['/private', '/hidden', '/tried/no']\nallow = ['users']\n\
         [[site.access.rule]]\nallow = ['everyone']\n",
    );
    for name in ["private/f", "private/tried/f", "hidden/f", "tried/no/f"] {
        server.write(name, "the secret content");
    }
    server.write("app.html", "app");
    server.write("tried.html", "tried");
    server.write("open/f", "open");
    symlink("../private/f", server.site().join("open/link")).unwrap();
    let answers = |target: &str| {
        let response = server.get(target);
        let head = response.head.lines();
        let head: Vec<_> = head.filter(|line| !line.starts_with("Date:")).collect();
        (head.join("\n"), response.text().to_owned())
    };
    for (refused, missing) in [
        ("/private/f", "/nothing/f"),
        ("/private/none", "/nothing/none"),
        ("/private/", "/nothing/"),
        ("/private", "/nothing"),
        ("/hidden/f", "/nothing/f"),
        ("/one/f", "/one/none"),
        ("/one/f", "/nothing"),
        ("/open/link", "/open/nothing"),
        ("/tried/f", "/tried/none"),
        ("/tried/no/f", "/tried/none"),
        ("/private/?download=tar", "/nothing/?download=tar"),
        ("/private/f?hash=sha256", "/nothing/f?hash=sha256"),
    ] {
        assert_eq!(answers(refused), answers(missing), "{refused} {missing}");
    }
    assert_eq!(server.get("/private/old/x").status, 301);
    let anna = server.get_with("/private/f", &basic("anna", "anna"));
    assert_eq!(anna.text(), "the secret content");
}

#[test]
fn how_much_is_left_out_of_a_listing_is_not_told() {
    let files = AccessFiles::new();
    let server = files.server(
        "listing = true",
        "[[site.access.rule]]\npaths = ['*.key']\nallow = ['users']\n\
         [[site.access.rule]]\nallow = ['everyone']\n",
    );
    for folder in ["few", "many"] {
        for number in 0..700 {
            server.write(format!("{folder}/{number}"), "");
        }
    }
    for number in 0..3000 {
        server.write(format!("many/{number}.key"), "");
    }
    for format in ["json", "html"] {
        let listing = |folder: &str| {
            let listing = server.get(&format!("/{folder}/?format={format}&search=1"));
            assert_eq!(listing.status, 200);
            // Without times, and without the name of the folder.
            listing.body.len() - folder.len() * listing.text().matches(folder).count()
        };
        assert_eq!(listing("few"), listing("many"), "{format}");
    }
}
