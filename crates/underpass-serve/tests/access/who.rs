//! Passwords, tokens, links and networks.

use std::fs;
use std::time::{Duration, SystemTime};

use underpass_serve::{ServerOptions, signed_link};
use underpass_testkit::{sha256, wait_until};

use super::{AccessFiles, basic, bearer, support::Server, token_line, told, user_line};

#[test]
fn who_shows_something_gets_what_the_rules_allow() {
    let files = AccessFiles::new();
    let server = files.server(
        "",
        "[[site.access.rule]]\npaths = ['/open']\nallow = ['everyone']\n\
         [[site.access.rule]]\npaths = ['/anna']\nallow = ['user:anna']\n\
         [[site.access.rule]]\npaths = ['/ci']\nallow = ['token:ci']\n\
         [[site.access.rule]]\npaths = ['/links']\nallow = ['links']\n\
         [[site.access.rule]]\npaths = ['/never']\nallow = []\n\
         [[site.access.rule]]\npaths = ['/all']\nallow = ['users', 'tokens', 'links']\n",
    );
    for name in ["open", "anna", "ci", "links", "never", "all", "other"] {
        server.write(format!("{name}/f"), name);
    }
    let password = "401 Basic realm=\"underpass\", charset=\"UTF-8\"";
    let token = &format!("{password}; Bearer realm=\"underpass\"");
    let (anna, ben, ci) = (basic("anna", "anna"), basic("ben", "ben"), bearer("secret"));
    let git = basic("anyone", "secret");
    for (target, shown, expected) in [
        ("/open/f", "X: y", "200"),
        ("/open/f", &basic("anna", "wrong"), "200"),
        ("/anna/f", "X: y", password),
        ("/anna/f", &anna, "200"),
        ("/anna/f", &ben, "403"),
        ("/anna/f", &basic("anna", "ben"), password),
        ("/anna/f", &basic("carl", "carl"), password),
        ("/anna/f", "Authorization: Basic !", password),
        ("/anna/f", &ci, "403"),
        ("/anna/none", "X: y", password),
        ("/anna/none", &anna, "404"),
        ("/ci/f", "X: y", token),
        ("/ci/f", &ci, "200"),
        ("/ci/f", &git, "200"),
        ("/ci/f", &bearer("other"), token),
        ("/ci/f", &anna, "403"),
        ("/links/f", "X: y", "403"),
        ("/links/f", &anna, "403"),
        ("/never/f", &anna, "403"),
        ("/other/f", &anna, "403"),
        ("/", &anna, "403"),
        ("/all/f", &anna, "200"),
        ("/all/f", &ben, "200"),
        ("/all/f", &ci, "200"),
    ] {
        // Twice: the second time the login is remembered and the file is open.
        for _ in 0..2 {
            let response = server.get_with(target, shown);
            assert_eq!(told(&response), expected, "{target} {shown}");
            if response.status == 200 {
                let content = target.split('/').nth(1).unwrap();
                assert_eq!(sha256(&response.body), sha256(content), "{target}");
            }
        }
    }
    let signed = files.signed("/links/f");
    assert_eq!(server.get(&signed).status, 200);
    assert_eq!(server.get(&files.signed("/never/f")).status, 403);
}

#[test]
fn without_rules_whoever_shows_something_reads_everything() {
    let files = AccessFiles::new();
    let server = files.server("", "");
    server.write("f", "f");
    assert_eq!(server.get("/f").status, 401);
    for shown in [basic("ben", "ben"), bearer("secret")] {
        assert_eq!(server.get_with("/f", &shown).status, 200, "{shown}");
    }
    assert_eq!(server.get(&files.signed("/f")).status, 200);
}

#[test]
fn links_are_for_what_was_signed_and_no_longer_than_that() {
    let files = AccessFiles::new();
    let server = files.server("", "[[site.access.rule]]\nallow = ['links']\n");
    server.write("d/a/f", "f");
    server.write("d/b", "b");
    server.write("e", "e");
    let file = files.signed("/d/b");
    let folder = files.signed("/d/a/");
    let query = |link: &str| link.split_once('?').unwrap().1.to_owned();
    for (target, expected) in [
        (file.clone(), 200),
        (format!("{file}&x=y"), 200),
        (format!("/d//x/../b?{}", query(&file)), 200),
        (format!("/d/a/f?{}", query(&file)), 403),
        (format!("/e?{}", query(&file)), 403),
        (folder.clone(), 200),
        (format!("/d/a/f?{}", query(&folder)), 200),
        (format!("/d/a/none?{}", query(&folder)), 404),
        (format!("/d/b?{}", query(&folder)), 403),
        (format!("/d/a?{}", query(&folder)), 403),
        (format!("/d/?{}", query(&folder)), 403),
        (file.replace("file", "1"), 403),
        (file[..file.len() - 1].to_owned(), 403),
    ] {
        assert_eq!(server.get(&target).status, expected, "{target}");
    }
    let mut client = server.connect();
    assert_eq!(client.ask_head(&file).status, 200);
    let range = server.get_with(&file, "Range: bytes=0-0");
    assert_eq!((range.status, &range.body[..]), (206, &b"b"[..]));
    let tar = server.get(&files.signed("/d/a/?download=tar"));
    assert_eq!(
        (tar.status, tar.field("content-type")),
        (200, Some("application/x-tar"))
    );
    let page = server.get_with(&folder, "Accept: text/html");
    let link = format!("href=\"./f?{}\"", query(&folder));
    assert!(page.text().contains(&link), "{}", page.text());
    let expired = signed_link(
        &server.options().sites[0].access,
        "/d/b",
        SystemTime::now() - Duration::from_secs(1),
    );
    let expired = expired.unwrap();
    let refused = server.get(&expired);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("this link has expired"));
    for forged in [expired.replace("file", "1"), expired.replace("d/b", "d/c")] {
        assert!(!server.get(&forged).text().contains("expired"), "{forged}");
    }
}

#[test]
fn keys_are_changed_while_links_are_in_use() {
    let files = AccessFiles::new();
    let server = files.server("", "[[site.access.rule]]\nallow = ['links']\n");
    server.write("f", "f");
    let old = files.signed("/f");
    assert_eq!(server.get(&old).status, 200);
    files.write("key", &"n".repeat(40));
    let new = files.signed("/f");
    wait_until("the new key is in use", || server.get(&new).status == 200);
    assert_eq!(server.get(&old).status, 403);
}

#[test]
fn who_is_removed_from_a_file_is_locked_out() {
    let files = AccessFiles::new();
    let server = files.server("", "");
    server.write("f", "f");
    let (anna, carl) = (basic("anna", "anna"), basic("carl", "carl"));
    let status = |shown: &str| server.get_with("/f", shown).status;
    assert_eq!([status(&anna), status(&carl)], [200, 401]);
    files.write("users", &user_line("carl", "carl"));
    // With a byte order mark and CRLF, as written by editors on Windows.
    files.write(
        "tokens",
        &format!("\u{feff}{}\r\n", token_line("ci", "other")),
    );
    wait_until("the new token is known", || status(&bearer("other")) == 200);
    assert_eq!(status(&carl), 200);
    assert_eq!(status(&anna), 401, "she is not remembered");
    assert_eq!(status(&bearer("secret")), 401);
}

#[test]
fn one_client_that_guesses_is_stopped_and_locks_nobody_out() {
    let files = AccessFiles::new();
    let server = files.server("", "");
    server.write("f", "f");
    let anna = basic("anna", "anna");
    assert_eq!(server.get_with("/f", &anna).status, 200);
    // Sent concurrently, so that no attempt becomes available again on a busy machine.
    let mut clients: Vec<_> = (0..30).map(|_| server.connect()).collect();
    // Alternating users: attempts are limited by client, not by user.
    for (number, client) in clients.iter_mut().enumerate() {
        let shown = basic(["anna", "ben"][number % 2], &number.to_string());
        client.send(format!("GET /f HTTP/1.1\r\nHost: a\r\n{shown}\r\n\r\n"));
    }
    let guesses: Vec<_> = clients.iter_mut().map(|client| client.response()).collect();
    let count = |status: u16| {
        let of = guesses.iter().filter(|guess| guess.status == status);
        of.count()
    };
    assert!(
        count(401) >= 10 && count(429) > 0,
        "{} {}",
        count(401),
        count(429)
    );
    assert_eq!(count(401) + count(429), 30);
    let limited = guesses.iter().find(|guess| guess.status == 429).unwrap();
    assert!(limited.field("retry-after").is_some() && limited.field("www-authenticate").is_none());
    assert_eq!(
        server.get_with("/f", &anna).status,
        200,
        "who is in stays in"
    );
    let mut other = underpass_testkit::HttpClient::connect_from([127, 0, 0, 7], server.address());
    other.send(format!(
        "GET /f HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n",
        basic("ben", "ben")
    ));
    assert_eq!(other.response().status, 200, "another client");
}

#[test]
fn networks_are_judged_by_the_client() {
    let server = Server::configured(
        "[site.access]\n\
         [[site.access.rule]]\nnetworks = ['127.0.0.7']\nallow = []\n\
         [[site.access.rule]]\nnetworks = ['127.0.0.0/8']\nallow = ['everyone']\n",
    );
    server.write("f", "f");
    for (source, expected) in [
        ([127, 0, 0, 1], 200),
        ([127, 0, 0, 7], 403),
        ([127, 9, 9, 9], 200),
    ] {
        let mut client = underpass_testkit::HttpClient::connect_from(source, server.address());
        assert_eq!(client.get("/f").status, expected, "{source:?}");
    }
}

#[test]
fn a_client_that_its_proxy_does_not_name_is_in_no_network() {
    let text = "[[site]]\n[site.access]\n[[site.access.rule]]\n\
                networks = ['127.0.0.0/8', '::ffff:192.0.2.0/120', 'unix']\nallow = ['everyone']";
    let access = ServerOptions::parse(text).unwrap().sites[0].access.clone();
    let server = Server::with(|options| {
        options.sites[0].access = access;
        options.connections.proxy.trusted = vec!["127.0.0.1".parse().unwrap()];
        options.connections.proxy.forwarded = underpass_net::Forwarded::Forwarded;
    });
    server.write("f", "f");
    for (named, expected) in [
        ("X: y", 200),
        ("Forwarded: for=127.0.0.9", 200),
        ("Forwarded: for=192.0.2.9", 200),
        ("Forwarded: for=198.51.100.1", 403),
        ("Forwarded: for=unknown", 403),
        ("Forwarded: for=_hidden", 403),
        ("Forwarded: for=127.0.0.9, for=_hidden", 403),
        ("Forwarded: for=\"127.0.0.9", 403),
    ] {
        assert_eq!(server.get_with("/f", named).status, expected, "{named}");
    }
}

#[test]
fn a_signature_is_not_passed_on_to_another_host() {
    let files = AccessFiles::new();
    let server = files.server(
        "redirect = [{from = '/d/old/*', to = 'https://other.example/*'},\n\
         {from = '/d/moved/*', to = '/d/*'}]\n",
        "[[site.access.rule]]\nallow = ['links']\n",
    );
    server.write("d/f", "f");
    let folder = files.signed("/d/");
    let signature = folder.split_once('?').unwrap().1;
    let location = |target: &str| {
        let response = server.get(&format!("{target}?a=b&{signature}"));
        response.field("location").unwrap().to_owned()
    };
    assert_eq!(location("/d/old/f"), "https://other.example/f?a=b");
    assert_eq!(location("/d/moved/f"), format!("/d/f?a=b&{signature}"));
}

#[test]
fn shared_caches_keep_nothing_that_some_may_read() {
    let files = AccessFiles::new();
    let server = files.server(
        "cache = [{paths = ['/**'], control = 'public, max-age=60'}]\nhashes = true",
        "[[site.access.rule]]\npaths = ['/open']\nallow = ['everyone']\n\
         [[site.access.rule]]\nallow = ['users']\n",
    );
    server.write("open/f", "f");
    server.write("closed/f", "f");
    let anna = basic("anna", "anna");
    for (target, shown, status, control) in [
        ("/open/f", "X: y", 200, "public, max-age=60"),
        ("/open/f", &anna, 200, "public, max-age=60"),
        ("/open/", "X: y", 200, "private, no-cache"),
        ("/open/none", "X: y", 404, "private"),
        ("/closed/f", &anna, 200, "private, max-age=60"),
        ("/closed/f?hash=sha256", &anna, 200, "private"),
        ("/closed/f", "X: y", 401, "private"),
        ("/closed", &anna, 301, "private"),
        ("/closed/", &anna, 200, "private, no-cache"),
        ("/closed/?download=tar", &anna, 200, "private, no-cache"),
    ] {
        let response = server.get_with(target, shown);
        assert_eq!(response.status, status, "{target}");
        assert_eq!(
            response.field("cache-control"),
            Some(control),
            "{target} {shown}"
        );
        let varies = response
            .field("vary")
            .is_some_and(|vary| vary.contains("Authorization"));
        assert_eq!(varies, control.contains("private"), "{target}");
    }
}

#[test]
fn who_is_not_told_gets_what_there_is_nowhere() {
    let files = AccessFiles::new();
    let server = files.server(
        "",
        "conceal = true\n[[site.access.rule]]\npaths = ['/open']\nallow = ['everyone']\n\
         [[site.access.rule]]\nallow = ['users']\n",
    );
    server.write("open/f", "f");
    server.write("closed/f", "f");
    let without_date = |target: &str| {
        let response = server.get(target);
        let fields: Vec<_> = response
            .head
            .lines()
            .filter(|line| !line.starts_with("Date"))
            .collect();
        (fields.join("\n"), response.body)
    };
    let nothing = without_date("/open/none");
    assert!(nothing.0.starts_with("HTTP/1.1 404"), "{}", nothing.0);
    for target in [
        "/closed/f",
        "/closed/none",
        "/closed",
        "/closed/",
        "/closed/?download=tar",
    ] {
        assert_eq!(without_date(target), nothing, "{target}");
    }
    assert_eq!(
        server.get_with("/closed/f", &basic("ben", "ben")).status,
        200
    );
}

#[test]
fn what_contradicts_itself_is_refused_at_the_start() {
    let files = AccessFiles::new();
    let folder = files.folder.path().display().to_string();
    for (site, expected) in [
        (
            "[site.access]\nusers = '/none/users'".to_owned(),
            "/none/users",
        ),
        (
            "[[site.access.rule]]\nallow = ['users']".to_owned(),
            "no `users` file",
        ),
        (
            "[[site.access.rule]]\nallow = ['links']".to_owned(),
            "no `link-keys` file",
        ),
        (files.site("symlinks = 'all'", ""), "links lead anywhere"),
        (files.site("", "realm = 'a\"b'"), "quotes"),
        (
            files.site(&format!("root = '{folder}'"), ""),
            "served folder",
        ),
        (
            files.site("", "[[site.access.rule]]\nallow = ['certificates']"),
            "client-ca",
        ),
    ] {
        let options = ServerOptions::parse(&format!("[[site]]\n{site}")).unwrap();
        let mistakes = underpass_serve::check(&options);
        let told: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        assert!(told.join("\n").contains(expected), "{site}: {told:?}");
        let mut options = options;
        options.listen = vec![
            "127.0.0.1:0"
                .parse::<std::net::SocketAddr>()
                .unwrap()
                .into(),
        ];
        assert!(underpass_serve::serve(&options).is_err(), "{site}");
    }
    fs::write(files.path("users"), "anna:{SHA}x\n").unwrap();
    let options = ServerOptions::parse(&format!("[[site]]\n{}", files.site("", ""))).unwrap();
    let told = underpass_serve::check(&options)[0].to_string();
    assert!(told.contains("users: line 1: a SHA-1 hash"), "{told}");
}
