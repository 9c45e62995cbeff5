//! The client's identity in the log and in the metrics.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use underpass_serve::{Access, LogFormat, ServerOptions, new_token, password_line, signed_link};
use underpass_testkit::{HttpClient, wait_until};

use super::{AccessFiles, basic, bearer, support::Server, user_line};

/// Starts a server for all kinds of clients, with options modified by `change`.
fn server(files: &AccessFiles, change: impl FnOnce(&mut ServerOptions)) -> Server {
    let text = format!("[[site]]\n{}", files.site("", "link-cookies = true"));
    let access = ServerOptions::parse(&text).unwrap().sites.remove(0).access;
    let server = Server::with(|options| {
        options.sites[0].access = access;
        change(options);
    });
    server.write("f", "f");
    server
}

/// A request: its target, the target in the log, a field, the referer in the log, the status and
/// the identity of the client.
type Row = (
    String,
    &'static str,
    String,
    &'static str,
    u16,
    &'static str,
);

fn rows(files: &AccessFiles, server: &Server) -> Vec<Row> {
    let signed = files.signed("/f?a=b");
    let access = &server.options().sites[0].access;
    let past = SystemTime::now() - Duration::from_secs(5);
    let expired = signed_link(access, "/f", past).unwrap();
    let referer = format!("Referer: http://a{signed}");
    let row = |target: &str, shown: String, status, asker| -> Row {
        (target.to_owned(), "/f", shown, "-", status, asker)
    };
    let cookie = files
        .signed("/")
        .replace("/?signed", "Cookie: underpass-signed");
    vec![
        row("/f", cookie, 200, "link"),
        row("/f", basic("anna", "anna"), 200, "user:anna"),
        row("/f", basic("anna", "wrong"), 401, "-"),
        row("/f", basic("anna lee", "x"), 200, "user:anna lee"),
        row("/f", bearer("secret"), 200, "token:ci"),
        row("/f", basic("whoever", "secret"), 200, "token:ci"),
        row("/f", "X: y".to_owned(), 401, "-"),
        (
            signed.clone(),
            "/f?a=b&signed=-",
            "X: y".to_owned(),
            "-",
            200,
            "link",
        ),
        (
            expired,
            "/f?signed=-",
            referer,
            "http://a/f?a=b&signed=-",
            401,
            "-",
        ),
    ]
}

/// Sends all requests on one connection, so that the log keeps their order, and returns the log.
fn logged(format: LogFormat, folder: &Path) -> (Vec<Row>, String) {
    let files = AccessFiles::new();
    let users = [user_line("anna", "anna"), user_line("anna lee", "x")];
    files.write("users", &users.join("\n"));
    let log = folder.join("log");
    let server = server(&files, |options| {
        options.log.access = Access::File(log.clone());
        options.log.format = format;
    });
    let rows = rows(&files, &server);
    let mut client = server.connect();
    for (target, _, field, _, status, _) in &rows {
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"
        ));
        assert_eq!(client.response().status, *status, "{target} {field}");
    }
    drop(client);
    server.stop();
    let log = fs::read_to_string(log).unwrap();
    for (target, _, field, ..) in &rows {
        let signatures = [target, field].map(|shown| shown.split("signed=").nth(1));
        let logged = |signature: &&str| log.contains(*signature);
        assert!(!signatures.iter().flatten().any(logged), "{log}");
    }
    assert_eq!(log.lines().count(), rows.len(), "{log}");
    (rows, log)
}

#[test]
fn the_combined_log_names_the_asker_and_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, log) = logged(LogFormat::Combined, folder.path());
    for ((_, target, _, referer, status, asker), line) in rows.iter().zip(log.lines()) {
        let (before, after) = (line.split('[').next(), line.split("] ").nth(1));
        let asker = asker.replace(' ', "\\x20");
        assert_eq!(before, Some(&*format!("127.0.0.1 - {asker} ")), "{line}");
        let request = format!("\"GET {target} HTTP/1.1\" {status} ");
        assert!(after.unwrap().starts_with(&request), "{line}");
        assert!(line.ends_with(&format!(" \"{referer}\" \"-\"")), "{line}");
    }
}

#[test]
fn the_json_log_names_the_asker_and_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, log) = logged(LogFormat::Json, folder.path());
    for ((_, target, _, referer, status, asker), line) in rows.iter().zip(log.lines()) {
        let object: Value = serde_json::from_str(line).unwrap();
        let or_null = |text: &str| match text {
            "-" => Value::Null,
            text => Value::from(text),
        };
        assert_eq!(object["asker"], or_null(asker), "{line}");
        assert_eq!(object["target"], *target, "{line}");
        assert_eq!(object["referer"], or_null(referer), "{line}");
        assert_eq!(object["status"], *status, "{line}");
    }
}

/// Starts a server with metrics on the socket `status` of a folder.
fn counted(files: &AccessFiles, folder: &Path) -> Server {
    server(files, |options| {
        options.status.listen = Some(folder.join("status").into());
    })
}

/// Returns logins by outcome: verified, wrong, limited, busy.
fn logins(folder: &Path) -> [u64; 4] {
    let metrics = HttpClient::connect_unix(&folder.join("status")).get("/metrics");
    ["verified", "wrong", "limited", "busy"].map(|outcome| {
        let name = format!("underpass_logins_total{{outcome=\"{outcome}\"}} ");
        let mut lines = metrics.text().lines();
        let count = lines.find_map(|line| line.strip_prefix(&name));
        count.unwrap().parse().unwrap()
    })
}

#[test]
fn logins_are_counted_by_what_became_of_them() {
    let (files, folder) = (AccessFiles::new(), tempfile::tempdir().unwrap());
    let server = counted(&files, folder.path());
    let status = |shown: String| server.get_with("/f", &shown).status;
    assert_eq!(logins(folder.path()), [0; 4]);
    // Neither of these is a password that has to be verified.
    assert_eq!(status("X: y".to_owned()), 401);
    assert_eq!(status(basic("ci", "secret")), 200);
    assert_eq!(logins(folder.path()), [0; 4]);
    for _ in 0..3 {
        assert_eq!(status(basic("anna", "anna")), 200);
    }
    assert_eq!(status(basic("ben", "ben")), 200);
    assert_eq!(logins(folder.path()), [2, 0, 0, 0], "others are remembered");
    assert_eq!(status(basic("anna", "wrong")), 401);
    assert_eq!(status(basic("nobody", "wrong")), 401);
    assert_eq!(logins(folder.path()), [2, 2, 0, 0]);
    // The number varies: on a busy machine attempts become available again.
    let mut guesses = 0..;
    wait_until("a limited one", || {
        let guess = guesses.next().unwrap();
        status(basic("anna", &format!("guess {guess}"))) == 429
    });
    let [verified, wrong, limited, busy] = logins(folder.path());
    assert_eq!([verified, limited, busy], [2, 1, 0]);
    assert_eq!(wrong, 2 + guesses.next().unwrap() - 1);
}

#[test]
fn logins_that_find_no_room_to_wait_are_counted_and_sent_back() {
    let (files, folder) = (AccessFiles::new(), tempfile::tempdir().unwrap());
    files.write("users", &password_line("anna", b"right").unwrap());
    let server = counted(&files, folder.path());
    let mut waiting = Vec::new();
    // Ten per address, faster than they are verified.
    wait_until("one without room", || {
        let number = u32::try_from(waiting.len()).unwrap();
        let [.., high, low] = (number / 10).to_be_bytes();
        let mut client = HttpClient::connect_from([127, 6, high, low], server.address());
        let shown = basic("anna", &number.to_string());
        client.send(format!("GET /f HTTP/1.1\r\nHost: a\r\n{shown}\r\n\r\n"));
        waiting.push(client);
        let [.., limited, busy] = logins(folder.path());
        assert_eq!(limited, 0);
        busy > 0
    });
    // The last one, or an earlier one that was counted late.
    let mut answers = waiting.iter_mut().rev().map(HttpClient::response);
    let answer = answers.find(|answer| answer.status == 429).unwrap();
    assert!(answer.field("retry-after").is_some());
    drop(waiting);
    let made = new_token("ci", None).unwrap();
    files.write("tokens", &made.line);
    wait_until("a token needs no room", || {
        server.get_with("/f", &bearer(&made.token)).status == 200
    });
}
