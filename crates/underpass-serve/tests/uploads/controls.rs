//! Upload controls are shown to clients that may upload. The policy of the page.

use std::fs;
use std::os::unix::fs::symlink;

use super::support::Server;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};
use underpass_testkit::HttpResponse;

const CONTROLS: &str = "<section id=\"upload\"";

fn has_controls(server: &Server, target: &str, fields: &str) -> bool {
    let answer = server.get_with(target, &format!("Accept: text/html\r\n{fields}"));
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.text().contains(CONTROLS)
}

/// Starts a site whose folder `/in` takes files in; `more` is configured after it.
fn server(more: &str) -> Server {
    let server = Server::with(|options| {
        let root = options.sites[0].root.clone();
        fs::create_dir_all(root.join("in/sub")).unwrap();
        fs::create_dir_all(root.join("out")).unwrap();
        let text = format!("[[site]]\nindex = []\n[[site.upload]]\npath = '/in'\n{more}");
        let site = underpass_serve::ServerOptions::parse(&text)
            .unwrap()
            .sites
            .remove(0);
        options.sites[0] = underpass_serve::SiteOptions { root, ..site };
    });
    server.write("in/secret-name", "secret");
    server.write("out/f", "f");
    server
}

#[test]
fn controls_are_where_files_are_taken_in() {
    let server = server("[[site.rewrite]]\nfrom = '/new/*'\nto = '/in/*'\n");
    symlink("../in", server.site().join("out/link")).unwrap();
    symlink("../../out", server.site().join("in/sub/away")).unwrap();
    for (target, expected) in [
        ("/in/", true),
        ("/in/sub/", true),
        ("/in/?sort=size&search=x", true),
        ("/", false),
        ("/out/", false),
        ("/out/link/", false),
        ("/in/sub/away/", false),
        ("/new/", false),
        ("/new/sub/", false),
    ] {
        assert_eq!(has_controls(&server, target, ""), expected, "{target}");
    }
    let without = Server::start();
    without.write("f", "f");
    assert!(!has_controls(&without, "/", ""));
}

#[test]
fn controls_are_for_those_who_may_use_them() {
    let rule = |methods: &str, networks: &str| {
        let rule = format!("methods = [{methods}]\nnetworks = [{networks}]\nallow = ['everyone']");
        format!("[[site.access.rule]]\n{rule}\n")
    };
    let reads = server(&rule("'GET'", ""));
    assert!(!has_controls(&reads, "/in/", ""));
    let elsewhere = server(&(rule("'PUT'", "'10.0.0.0/8'") + &rule("'GET'", "")));
    assert!(!has_controls(&elsewhere, "/in/", ""));
    let puts = server(&rule("'GET', 'PUT'", ""));
    assert!(has_controls(&puts, "/in/", ""));
    let flags = |server: &Server| {
        let page = server.get("/in/").text().to_owned();
        let (_, rest) = page.split_once(CONTROLS).unwrap();
        let (section, _) = rest.split_once('>').unwrap();
        (
            section.contains("data-overwrite"),
            section.contains("data-delete"),
        )
    };
    assert_eq!(flags(&puts), (false, false));
    let all = server("overwrite = true\ndelete = true\n");
    assert_eq!(flags(&all), (true, true));
    let keeps = server(&format!(
        "overwrite = true\ndelete = true\n{}",
        rule("'GET', 'PUT'", "")
    ));
    assert_eq!(flags(&keeps), (true, false));
}

#[test]
fn a_signed_link_shows_no_controls() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "k".repeat(40)).unwrap();
    let server = server(&format!(
        "[site.access]\nlink-keys = ['{}']\n[[site.access.rule]]\nallow = ['everyone', 'links']\n",
        key.display()
    ));
    assert!(has_controls(&server, "/in/", ""));
    let site = &server.options().sites[0];
    let until = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let signed = underpass_serve::signed_link(&site.access, "/in/", until).unwrap();
    assert!(!has_controls(&server, &signed, ""));
    // A malformed signature is none.
    assert!(has_controls(&server, "/in/?signed=1.folder.x", ""));
}

#[test]
fn a_drop_box_shows_controls_and_no_names() {
    let server = server(
        "[[site.access.rule]]\npaths = ['/in/*']\nmethods = ['GET']\nallow = []\n\
         [[site.access.rule]]\npaths = ['/in']\nmethods = ['GET', 'PUT']\nallow = ['everyone']\n",
    );
    let page = server.get("/in/");
    assert!(page.text().contains(CONTROLS), "{}", page.head);
    assert!(!page.text().contains("secret-name"), "{}", page.text());
    let put = |name: &str| {
        server.ask(format!(
            "PUT /in/{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
        ))
    };
    assert_eq!(put("new").status, 201);
    assert_eq!(put("secret-name").status, 409);
    assert_eq!(server.get("/in/new").status, 403);
}

/// The contents of all elements of a kind.
fn contents<'p>(page: &'p str, element: &str) -> Vec<&'p str> {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let parts = page.split(&begin[..]).skip(1);
    parts
        .map(|part| part.split_once(&end[..]).unwrap().0)
        .collect()
}

fn assert_policy(page: &HttpResponse, connects: bool) {
    let policy = page.field("content-security-policy").unwrap();
    let directives: Vec<_> = policy.split("; ").collect();
    let allowed = |name: &str, element: &str| {
        let hashes = contents(page.text(), element).into_iter().map(|content| {
            let hash = BASE64_STANDARD.encode(Sha256::digest(content));
            format!(" 'sha256-{hash}'")
        });
        format!("{name}{}", hashes.collect::<String>())
    };
    let mut expected = vec![
        "default-src 'none'".to_owned(),
        allowed("style-src", "style"),
        allowed("script-src", "script"),
    ];
    expected.extend(connects.then(|| "connect-src 'self'".to_owned()));
    expected.extend(
        [
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
        .map(str::to_owned),
    );
    assert_eq!(directives, expected);
}

#[test]
fn the_page_runs_its_own_scripts_and_connects_to_this_server_alone() {
    let server = server("delete = true\n");
    let page = server.get("/in/");
    assert_policy(&page, true);
    assert_policy(&server.get("/out/"), false);
    // Under "no-referrer" browsers send "Origin: null" with a form, which is refused.
    assert_eq!(page.field("referrer-policy"), Some("same-origin"));
    assert_eq!(
        server.get("/out/").field("referrer-policy"),
        Some("no-referrer")
    );
    let text = page.text();
    let scripts: usize = contents(text, "script")
        .iter()
        .map(|script| script.len())
        .sum();
    assert!(scripts < 30_000, "{scripts} bytes of scripts");
    for outside in [
        "src=",
        "style=\"",
        " onclick=\"",
        "@import",
        "url(",
        "javascript:",
    ] {
        let html = contents(text, "script")
            .iter()
            .fold(text.to_owned(), |html, script| html.replace(script, ""));
        let html = contents(text, "style")
            .iter()
            .fold(html, |html, style| html.replace(style, ""));
        assert!(!html.contains(outside), "{outside}");
    }
    for script in contents(text, "script") {
        for risky in [
            "eval(",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "new Function",
        ] {
            assert!(!script.contains(risky), "{risky}");
        }
    }
}

#[test]
fn a_file_is_renamed_within_its_folder_by_a_relative_destination() {
    let server = server("delete = true\n");
    let rename = |from: &str, to: &str| {
        server.ask(format!(
            "MOVE {from} HTTP/1.1\r\nHost: a\r\nDestination: {to}\r\nOverwrite: F\r\n\r\n"
        ))
    };
    assert_eq!(rename("/in/secret-name", "./new%20%23name").status, 201);
    assert!(server.site().join("in/new #name").exists());
    assert_eq!(rename("/in/sub/", "./other").status, 201);
    assert!(server.site().join("in/other").is_dir());
    for to in [
        "./",
        "./..",
        "./%2e%2e",
        "./a/b",
        "./a%2f..%2f..%2fout",
        "./.hidden",
        "./a?b",
        "../x",
    ] {
        let status = rename("/in/new%20%23name", to).status;
        assert!([400, 403, 409].contains(&status), "{to}: {status}");
    }
    assert!(server.site().join("in/new #name").exists());
}
