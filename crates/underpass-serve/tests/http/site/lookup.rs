//! Path resolution with all settings of a site: indexes, pretty paths, fallbacks, error pages,
//! redirects, rewrites, hidden names, links, host names.

use std::fs;
use std::os::unix::fs::symlink;

use underpass_serve::{Error, ServerOptions, SiteOptions};
use underpass_testkit::HttpResponse;

use crate::support::digest::resolved;
use crate::support::{Probe, Server, State};

fn shown(target: &str, answer: &HttpResponse) -> String {
    match answer.field("location") {
        Some(location) => {
            let location = resolved(format!("GET {target}").as_bytes(), location);
            format!("{} {location}", answer.status)
        }
        None if answer.status == 200 => String::from_utf8_lossy(&answer.body).into_owned(),
        None => answer.status.to_string(),
    }
}

fn check(server: &Server, rows: &[(&str, &str)]) {
    // Twice: a file that is kept open must give the same result.
    for (target, expected) in rows.iter().chain(rows) {
        assert_eq!(shown(target, &server.get(target)), *expected, "{target}");
    }
}

#[test]
fn a_site_without_codings_sends_what_there_is() {
    let server = Server::start();
    server.write("a.txt", "a");
    let answer = server.get_with("/a.txt", "Accept-Encoding: identity;q=0");
    assert_eq!(shown("/", &answer), "a");
}

#[test]
fn a_folder_is_answered_with_its_first_index() {
    let server = Server::configured("listing = false\nindex = ['index.html', 'README.md']");
    server.write("index.html", "root");
    server.write("both/index.html", "html");
    server.write("both/README.md", "md");
    server.write("second/README.md", "md");
    server.write("neither/x", "x");
    fs::create_dir_all(server.site().join("folder/index.html")).unwrap();
    check(
        &server,
        &[
            ("/", "root"),
            ("/both/", "html"),
            ("/second/", "md"),
            ("/second", "301 /second/"),
            ("/neither/", "403"),
            ("/folder/", "403"),
            ("/none/", "404"),
            ("/index.html/", "404"),
        ],
    );
}

#[test]
fn a_new_index_and_a_deleted_one_are_noticed() {
    let server = Server::configured("listing = false\nindex = ['a', 'b']");
    server.write("d/a", "a");
    server.write("d/b", "b");
    check(&server, &[("/d/", "a")]);
    fs::remove_file(server.site().join("d/a")).unwrap();
    check(&server, &[("/d/", "b")]);
    fs::remove_file(server.site().join("d/b")).unwrap();
    check(&server, &[("/d/", "403")]);
}

#[test]
fn pretty_paths_prefer_files_then_html_then_folders_and_never_run_in_circles() {
    let server = Server::configured("listing = false\npretty = true");
    server.write("about.html", "about");
    server.write("plain", "plain");
    server.write("plain.html", "html");
    server.write("both.html", "both html");
    server.write("both/index.html", "both index");
    server.write("bare.html", "bare html");
    server.write("bare/x", "x");
    server.write("only/index.html", "only");
    fs::create_dir(server.site().join("dir.html")).unwrap();
    check(
        &server,
        &[
            ("/about", "about"),
            ("/about?a=b", "about"),
            ("/about.html", "about"),
            ("/about/", "404"),
            ("/plain", "plain"),
            ("/both", "both html"),
            ("/both/", "both index"),
            ("/bare", "bare html"),
            ("/bare/", "403"),
            ("/only", "301 /only/"),
            ("/dir", "404"),
            ("/none", "404"),
        ],
    );
    let type_of = |target| server.get(target).field("content-type").map(str::to_owned);
    assert_eq!(type_of("/about"), Some("text/html; charset=utf-8".into()));
    let off = Server::start();
    off.write("about.html", "about");
    check(&off, &[("/about", "404")]);
}

#[test]
fn a_fallback_answers_where_nothing_is_and_only_there() {
    let server = Server::configured("listing = false\nfallback = '/app/index.html'");
    server.write("app/index.html", "app");
    server.write("file", "file");
    server.write("bare/x", "x");
    server.write(".git/config", "hidden");
    check(
        &server,
        &[
            ("/", "403"),
            ("/file", "file"),
            ("/route", "app"),
            ("/route/deeper/", "app"),
            ("/file/x", "app"),
            ("/bare", "301 /bare/"),
            ("/.git/config", "404"),
            ("/.git/none", "404"),
        ],
    );
    let asked = |method: &str| server.ask(format!("{method} /route HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(asked("POST").status, 405);
    let mut client = server.connect();
    client.send("HEAD /route HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("3"))
    );
    // It is served like the file itself, including validators.
    let tag = server.get("/route").field("etag").unwrap().to_owned();
    let again = server.get_with("/other", &format!("If-None-Match: {tag}"));
    assert_eq!(again.status, 304);
}

#[test]
fn a_fallback_that_is_missing_is_a_404() {
    let server = Server::configured("fallback = '/none.html'");
    check(&server, &[("/route", "404")]);
}

#[test]
fn errors_have_pages_of_their_own_under_their_own_status() {
    let server = Server::configured(
        "listing = false\nerror-pages = {404 = '/errors/404.html', 403 = '/errors/none.html', \
         405 = '/errors/405.html', 416 = '/errors/404.html'}",
    );
    server.write("errors/404.html", "<p>gone</p>");
    server.write("errors/405.html", "<p>no</p>");
    server.write("bare/x", "x");
    server.write("probe", "probe");
    let page = server.get("/none");
    assert_eq!((page.status, &page.body[..]), (404, &b"<p>gone</p>"[..]));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    for absent in ["etag", "last-modified", "accept-ranges", "cache-control"] {
        assert_eq!(page.field(absent), None, "{absent}");
    }
    // The error page's own validators are not used.
    let tag = server
        .get("/errors/404.html")
        .field("etag")
        .unwrap()
        .to_owned();
    for fields in [
        format!("If-None-Match: {tag}"),
        "If-None-Match: *".into(),
        "If-Match: \"x\"".into(),
        "Range: bytes=0-1".into(),
    ] {
        let again = server.get_with("/none", &fields);
        assert_eq!(
            (again.status, &again.body[..]),
            (404, &b"<p>gone</p>"[..]),
            "{fields}"
        );
    }
    let missing = server.get("/bare/");
    assert_eq!(missing.status, 403);
    assert!(missing.body.starts_with(b"403 Forbidden: "));
    let refused = server.ask("POST / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        (refused.status, &refused.body[..]),
        (405, &b"<p>no</p>"[..])
    );
    assert!(refused.field("allow").is_some());
    let range = server.get_with("/bare/x", "Range: bytes=9-");
    assert_eq!(
        (range.status, range.field("content-range")),
        (416, Some("bytes */1"))
    );
    assert_eq!(range.body, b"<p>gone</p>");
    let mut client = server.connect();
    client.send("HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (404, Some("11"))
    );
    assert_eq!(client.state(), State::Open);
}

#[test]
fn redirects_come_first_and_stay_on_this_host() {
    let server = Server::configured(
        "redirect = [{from = '/old', to = '/new', status = 308}, {from = '/d/*', to = '/*'}, \
         {from = '/away/*', to = 'https://example.org/x/*', status = 302}, \
         {from = '/there', to = '/elsewhere', status = 307}]",
    );
    server.write("there", "there");
    check(
        &server,
        &[
            ("/old", "308 /new"),
            ("/old?q=1", "308 /new?q=1"),
            ("/d/a/b", "301 /a/b"),
            ("/d//evil.example/", "301 /evil.example/"),
            ("/d/%2f%2fevil.example", "301 /evil.example"),
            ("/d/%5cevil.example", "301 /%5Cevil.example"),
            (
                "/away/a%0d%0aX:%20y",
                "302 https://example.org/x/a%0D%0AX:%20y",
            ),
            ("/there", "307 /elsewhere"),
        ],
    );
}

#[test]
fn rewrites_are_invisible_and_made_once() {
    let server = Server::configured(
        "rewrite = [{from = '/v2/*', to = '/releases/*'}, {from = '/latest', to = '/v2/file'}, \
         {from = '/secret', to = '/.hidden'}]",
    );
    server.write("releases/file", "file");
    server.write("releases/dir/index.html", "index");
    server.write("v2/file", "other");
    server.write(".hidden", "hidden");
    check(
        &server,
        &[
            ("/v2/file", "file"),
            ("/v2/dir", "301 /v2/dir/"),
            ("/v2/dir/", "index"),
            ("/v2/../v2/file", "file"),
            ("/latest", "other"),
            ("/secret", "404"),
        ],
    );
}

#[test]
fn a_rewrite_without_a_star_to_a_folder_redirects_to_the_folder() {
    let server = Server::configured(
        "fallback = '/file'\n\
         rewrite = [{from = '/docs', to = '/manual/'}, {from = '/slash/', to = '/manual/'}, \
         {from = '/home', to = '/'}, {from = '/bare', to = '/manual'}, \
         {from = '/none', to = '/no/'}, {from = '/all/*', to = '/all/'}, \
         {from = '/a/*', to = '/b/'}, {from = '/b/*', to = '/a/'}, {from = '/c', to = '/d/'}]\n\
         redirect = [{from = '/d/', to = '/c'}]",
    );
    server.write("file", "file");
    for folder in ["manual", "all", "a", "b", "d", "."] {
        server.write(format!("{folder}/index.html"), folder);
    }
    check(
        &server,
        &[
            ("/docs", "301 /manual/"),
            ("/docs?q=1", "301 /manual/?q=1"),
            ("/slash/", "301 /manual/"),
            ("/home", "301 /"),
            ("/bare", "301 /manual/"),
            ("/manual/", "manual"),
            ("/none", "file"),
            // A path that would be redirected again, or back, is answered instead.
            ("/all/x", "301 /all/"),
            ("/all/", "all"),
            ("/a/x", "b"),
            ("/b/x", "a"),
            ("/c", "d"),
        ],
    );
}

#[test]
fn a_list_is_tried_in_its_order_and_the_first_that_is_there_decides() {
    let server = Server::configured(
        "listing = false\n\
         try = [{paths = ['/app/**'], files = ['{path}', '{path}.html', '/app/index.html']}, \
         {paths = ['/x/**', '/y/*'], files = ['/new{path}', '/old{path}', '{path}/data.json']}, \
         {paths = ['/**'], files = ['{path}.html', '{path}']}]",
    );
    for name in [
        "app/index.html",
        "app/file",
        "app/page.html",
        "app/both",
        "app/both.html",
        "app/folder/index.html",
        "app/bare/x",
        "new/x/f",
        "old/x/f",
        "old/x/g",
        "old/x/d/index.html",
        "x/h/data.json",
        "y/i/data.json",
        "other.html",
        "other/x",
        "plain",
    ] {
        server.write(name, name);
    }
    fs::create_dir(server.site().join("app/dir.html")).unwrap();
    check(
        &server,
        &[
            ("/app/file", "app/file"),
            ("/app/page", "app/page.html"),
            ("/app/both", "app/both"),
            ("/app/folder", "301 /app/folder/"),
            ("/app/folder/", "app/folder/index.html"),
            ("/app/route/deeper", "app/index.html"),
            ("/app/route/", "app/index.html"),
            ("/app/page/", "app/index.html"),
            ("/app/", "app/index.html"),
            ("/app/bare/", "403"),
            ("/app/dir", "app/index.html"),
            ("/app/%2e%2e/none", "404"),
            ("/x/f", "new/x/f"),
            ("/x/g", "old/x/g"),
            // Existing names take precedence, and relative links in them stay valid.
            ("/x/d", "301 /x/d/"),
            ("/x/d/", "old/x/d/index.html"),
            ("/x/h", "x/h/data.json"),
            ("/y/i", "y/i/data.json"),
            ("/y/i/j", "404"),
            ("/other", "other.html"),
            ("/other/", "403"),
            ("/plain", "plain"),
            ("/none", "404"),
        ],
    );
    let tag = server.get("/app/1").field("etag").unwrap().to_owned();
    let again = server.get_with("/app/2", &format!("If-None-Match: {tag}"));
    assert_eq!(again.status, 304);
    fs::remove_file(server.site().join("app/both")).unwrap();
    check(&server, &[("/app/both", "app/both.html")]);
}

#[test]
fn what_is_tried_keeps_to_the_policies_and_stands_before_the_fallback() {
    let server = Server::configured(
        "fallback = '/fallback'\nrewrite = [{from = '/short/*', to = '/long/*'}]\n\
         try = [{paths = ['/**'], files = ['/.secret', '{path}', '/trap{path}', '/.d{path}', \
         '/link{path}', '/out{path}']}]",
    );
    for name in [".secret", "fallback", ".d/f", "long/g", "dir/inside"] {
        server.write(name, name);
    }
    fs::create_dir(server.outside().join("private")).unwrap();
    fs::write(server.outside().join("private/key"), "key").unwrap();
    symlink("../private", server.site().join("out")).unwrap();
    symlink("/proc/self/root", server.site().join("trap")).unwrap();
    symlink("dir", server.site().join("link")).unwrap();
    check(
        &server,
        &[
            ("/f", "fallback"),
            ("/key", "fallback"),
            ("/etc/passwd", "fallback"),
            ("/inside", "dir/inside"),
            ("/short/g", "long/g"),
            ("/.secret", "404"),
            ("/.d/f", "404"),
        ],
    );
    assert_eq!(server.get("/../key").status, 400);
    let none = Server::configured(
        "symlinks = 'none'\ntry = [{paths = ['/**'], files = ['/link{path}', '{path}']}]",
    );
    none.write("dir/inside", "inside");
    symlink("dir", none.site().join("link")).unwrap();
    check(&none, &[("/inside", "404"), ("/dir/inside", "inside")]);
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    for (files, what) in [
        ("[]", "`files` is empty"),
        ("['{path}', 'index.html']", "does not begin with a slash"),
        ("['{path}/']", "finds folders too"),
        ("['{path}/../x']", "not next to `..`"),
        ("['{path}/../../etc/passwd']", "above the root"),
    ] {
        let text = format!("[[site]]\ntry = [{{paths = ['/**'], files = {files}}}]");
        let refused =
            ServerOptions::parse(&text).and_then(|options| underpass_serve::serve(&options));
        let reported = refused.err().unwrap().to_string();
        assert!(reported.contains(what), "{files}: {reported}");
    }
    let many = format!("[{}'/f']", "'{path}', ".repeat(16));
    let text = format!("[[site]]\ntry = [{{paths = ['/**'], files = {many}}}]");
    let reported = underpass_serve::serve(&ServerOptions::parse(&text).unwrap()).unwrap_err();
    assert!(reported.to_string().contains("17 entries"), "{reported}");
}

#[test]
fn hidden_names_are_shown_where_configured() {
    let rows = |status: &'static str| [("/.x", status), ("/.d/f", status), ("/.well-known/f", "f")];
    for (option, rows) in [("", rows("404")), ("hidden = 'shown'", rows("f"))] {
        let server = Server::configured(option);
        for name in [".x", ".d/f", ".well-known/f"] {
            server.write(name, "f");
        }
        check(&server, &rows);
    }
}

#[test]
fn links_are_followed_as_far_as_the_policy_goes() {
    for (policy, inside, outside) in [
        ("none", "404", "404"),
        ("inside", "f", "404"),
        ("all", "f", "s"),
    ] {
        let server = Server::configured(&format!("symlinks = '{policy}'"));
        server.write("dir/f", "f");
        fs::write(server.outside().join("secret"), "s").unwrap();
        let root = server.site();
        symlink("dir/f", root.join("inside")).unwrap();
        symlink("dir", root.join("folder")).unwrap();
        symlink("../secret", root.join("outside")).unwrap();
        symlink(server.outside().join("secret"), root.join("absolute")).unwrap();
        symlink("/proc/self/root/etc/passwd", root.join("magic")).unwrap();
        check(
            &server,
            &[
                ("/dir/f", "f"),
                ("/inside", inside),
                ("/folder/f", inside),
                ("/outside", outside),
                ("/absolute", outside),
                ("/magic", "404"),
            ],
        );
        assert_eq!(server.get("/../secret").status, 400);
    }
}

/// Starts a server of three sites: `first.example`, `*.example.org` and `exact.example.org`.
fn sites() -> Server {
    let server = Server::with(|options| {
        let root = options.sites[0].root.clone();
        options.sites.clear();
        for (name, names) in [
            ("first", "'first.example'"),
            ("wild", "'*.example.org'"),
            ("exact", "'Exact.Example.org', '*.deep.example.org'"),
        ] {
            let text = format!("[[site]]\nnames = [{names}]");
            let site = ServerOptions::parse(&text).unwrap().sites.remove(0);
            let root = root.join(name);
            fs::create_dir(&root).unwrap();
            fs::write(root.join("f"), name).unwrap();
            options.sites.push(SiteOptions { root, ..site });
        }
    });
    assert_eq!(server.get("/f").body, b"first");
    server
}

#[test]
fn the_host_name_chooses_the_site_and_a_target_beats_it() {
    let server = sites();
    for (request, site) in [
        ("/f HTTP/1.1\r\nHost: first.example", "first"),
        ("/f HTTP/1.1\r\nHost: unknown.example", "first"),
        ("/f HTTP/1.1\r\nHost: a.example.org:8080", "wild"),
        ("/f HTTP/1.1\r\nHost: b.a.EXAMPLE.org.", "wild"),
        ("/f HTTP/1.1\r\nHost: example.org", "first"),
        ("/f HTTP/1.1\r\nHost: exact.example.org", "exact"),
        ("/f HTTP/1.1\r\nHost: x.deep.example.org", "exact"),
        ("/f HTTP/1.0\r\nX: y", "first"),
        (
            "http://exact.example.org/f HTTP/1.1\r\nHost: a.example.org",
            "exact",
        ),
        (
            "http://EXACT.example.org:99/f HTTP/1.1\r\nHost: first.example",
            "exact",
        ),
        (
            "http://none.example/f HTTP/1.1\r\nHost: exact.example.org",
            "first",
        ),
    ] {
        let answer = server.ask(format!("GET {request}\r\n\r\n"));
        assert_eq!(shown("/", &answer), site, "{request}");
    }
}

#[test]
fn sites_that_cannot_be_distinguished_are_refused() {
    let text = "[[site]]\nnames = ['*.a.example']\n[[site]]\nnames = ['*.A.example']\n";
    let refused = underpass_serve::serve(&ServerOptions::parse(text).unwrap());
    assert!(matches!(refused, Err(Error::NameTaken { name }) if name == "*.a.example"));
}
