//! Listings, archives and hashes of sites with other than the default configuration.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;
use underpass_testkit::{HttpResponse, sha256};

use crate::support::{Server, make_old};

/// Returns the names in a listing.
fn listed(server: &Server, target: &str) -> Vec<String> {
    let answer = server.get_with(target, "Accept: application/json");
    assert_eq!(answer.status, 200, "{target}: {}", answer.head);
    let listing: Value = serde_json::from_slice(&answer.body).unwrap();
    let entries = listing["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_page(answer: &HttpResponse) -> bool {
    answer.status == 200 && answer.body.starts_with(b"<!DOCTYPE html>")
}

fn contains(answer: &HttpResponse, part: &str) -> bool {
    let part = part.as_bytes();
    answer.body.windows(part.len()).any(|window| window == part)
}

#[test]
fn hidden_names_are_listed_and_sent_where_they_are_shown() {
    for (site, expected) in [("hidden = 'shown'", &[".x", "f"][..]), ("", &["f"])] {
        let server = Server::configured(site);
        server.write("d/f", "f");
        server.write("d/.x", "dots");
        assert_eq!(listed(&server, "/d/"), expected, "{site}");
        let archive = server.get("/d/?download=tar");
        assert_eq!(contains(&archive, "d/.x"), expected.len() > 1, "{site}");
        let hidden = Server::configured(site);
        hidden.write(".git/config", "config");
        let status = if expected.len() > 1 { 200 } else { 404 };
        for target in ["/.git/", "/.git/?download=tar", "/.git/config?hash=sha256"] {
            assert_eq!(hidden.get(target).status, status, "{site} {target}");
        }
    }
}

#[test]
fn links_are_listed_as_far_as_they_are_followed() {
    for (policy, expected) in [
        ("none", &["f"][..]),
        ("inside", &["f", "in"]),
        ("all", &["f", "in", "out"]),
    ] {
        let server = Server::configured(&format!("symlinks = '{policy}'"));
        server.write("d/f", "f");
        fs::write(server.outside().join("secret"), "secret").unwrap();
        symlink("f", server.site().join("d/in")).unwrap();
        symlink("../../secret", server.site().join("d/out")).unwrap();
        assert_eq!(listed(&server, "/d/"), expected, "{policy}");
        for name in ["f", "in", "out"] {
            let status = if expected.contains(&name) { 200 } else { 404 };
            assert_eq!(server.get(&format!("/d/{name}")).status, status, "{name}");
        }
        let archive = server.get("/d/?download=tar");
        assert_eq!(contains(&archive, "d/in"), policy != "none", "{policy}");
        assert!(!contains(&archive, "d/out"), "{policy}");
        assert!(!contains(&archive, "secret"), "{policy}");
    }
}

#[test]
fn a_folder_that_is_there_is_listed_beside_fallback_and_redirects_and_under_its_rewritten_name() {
    let server = Server::configured(
        "fallback = '/app.html'\npretty = true\n\
         redirect = [{from = '/old/*', to = '/d/*'}]\n\
         rewrite = [{from = '/new/*', to = '/d/*'}]",
    );
    server.write("app.html", "app");
    server.write("d/sub/f", "f");
    assert!(is_page(&server.get("/d/")));
    assert_eq!(server.get("/none/").body, b"app");
    assert_eq!(server.get("/none/?download=tar").body, b"app");
    let moved = server.get("/old/sub/?download=tar");
    assert_eq!(moved.field("location"), Some("/d/sub/?download=tar"));
    assert_eq!(listed(&server, "/new/"), ["sub"]);
    let listing = server.get("/new/sub/?format=json");
    assert!(contains(&listing, "\"path\":\"/new/sub/\""));
    let moved = server.get("/new/sub");
    assert_eq!(moved.field("location"), Some("sub/"));
}

#[test]
fn what_is_refused_of_a_folder_has_the_page_of_its_status() {
    let server = Server::configured("listing = false\nerror-pages = {403 = '/403.html'}");
    server.write("403.html", "<p>no</p>");
    server.write("d/f", "f");
    for target in ["/d/", "/d/?download=tar", "/d/?format=json"] {
        let answer = server.get(target);
        assert_eq!((answer.status, &answer.body[..]), (403, &b"<p>no</p>"[..]));
    }
}

#[test]
fn the_fields_of_a_site_stand_in_listings_archives_and_hashes() {
    let server = Server::configured(
        "hashes = true\nsecurity.nosniff = false\nsecurity.frame-options = 'DENY'\n\
         security.referrer-policy = 'same-origin'\n\
         security.content-security-policy = \"default-src 'self'\"\n\
         cors.origins = ['https://a.example']\n\
         header = [{paths = ['**'], name = 'X-File', value = 'yes'}]",
    );
    server.write("d/f", "f");
    let reported = |target: &str, field: &str| {
        let answer = server.get_with(target, "Origin: https://a.example");
        assert_eq!(answer.status, 200, "{target}");
        let named = format!("\r\n{}:", field.to_lowercase());
        let times = answer.head.to_lowercase().matches(&named).count();
        assert!(times < 2, "{field} stands twice: {}", answer.head);
        answer.field(field).map(str::to_owned)
    };
    for target in [
        "/d/",
        "/d/?format=json",
        "/d/?download=tar",
        "/d/?download=tar.zst",
        "/d/f?hash=sha256",
    ] {
        for (field, value) in [
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Access-Control-Allow-Origin", "https://a.example"),
        ] {
            assert_eq!(reported(target, field).as_deref(), Some(value), "{target}");
        }
        assert_eq!(reported(target, "X-File"), None, "{target}");
        let policy = reported(target, "Content-Security-Policy").unwrap();
        let own = policy.starts_with("default-src 'none'; ");
        assert_eq!(own, target == "/d/", "{target}: {policy}");
    }
    assert_eq!(reported("/d/", "Vary").as_deref(), Some("Accept, Origin"));
    assert_eq!(
        reported("/d/?download=tar", "Vary").as_deref(),
        Some("Origin")
    );
}

#[test]
fn a_hash_is_that_of_the_file_and_not_of_its_compressed_copy() {
    let server = Server::configured("hashes = true\nprecompressed = ['gzip']");
    server.write("f", "plain");
    make_old(&server.site().join("f"));
    server.write("f.gz", "copy");
    let fields = "Accept-Encoding: gzip";
    assert_eq!(server.get_with("/f", fields).body, b"copy");
    let answer = server.get_with("/f?hash=sha256", fields);
    assert_eq!(answer.text(), format!("{}  f\n", sha256("plain")));
    assert_eq!(answer.field("content-encoding"), None);
}

#[test]
fn a_file_is_saved_for_download_and_a_folder_needs_a_format() {
    let server = Server::start();
    server.write("d/f", "f");
    for query in ["download", "download=tar", "download="] {
        let answer = server.get(&format!("/d/f?{query}"));
        let saved = answer.field("content-disposition").unwrap();
        assert!(saved.contains("\"f\""), "{saved}");
        assert_eq!(answer.body, b"f");
    }
    assert!(is_page(&server.get("/d/?download")));
    let archive = server.get("/d/?download=tar");
    assert_eq!(archive.field("content-type"), Some("application/x-tar"));
}
