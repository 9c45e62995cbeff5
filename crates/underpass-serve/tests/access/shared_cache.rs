//! A shared cache in front of the server: nginx also stores responses to requests with
//! `Authorization`, unless the response forbids it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use underpass_testkit::{HttpClient, HttpResponse, wait_until};

use super::nginx::Nginx;
use super::{AccessFiles, basic, support::Server};

const RULES: &str = "[[site.access.rule]]\npaths = ['/open']\nallow = ['everyone']\n\
                     [[site.access.rule]]\npaths = ['/closed']\nallow = ['user:anna', 'links']\n";

const SECRET: &str = "the secret content";

/// Targets behind the rule, each with another kind of response.
const CLOSED: [&str; 8] = [
    "/closed/f",
    "/closed/f?download",
    "/closed/f?hash=sha256",
    "/closed/",
    "/closed/?format=json",
    "/closed/?download=tar",
    "/closed/?download=tar.zst",
    "/closed",
];

/// A server behind a cache, which listens on a Unix socket.
struct Cached {
    server: Server,
    _nginx: Nginx,
    socket: PathBuf,
}

impl Cached {
    fn start(files: &AccessFiles, home: &Path, access: &str) -> Cached {
        let server = files.server(
            "cache = [{paths = ['/**'], control = 'public, max-age=3600'}]\nhashes = true\n\
             listing = true\ndownload = true",
            &format!("{access}\n{RULES}"),
        );
        server.write("open/f", "open");
        server.write("closed/f", SECRET);
        let socket = home.join("cache.socket");
        let more = format!(
            "proxy_cache_path {home}/cache keys_zone=responses:1m;
             server {{
                 listen unix:{socket};
                 location / {{
                     proxy_pass http://{upstream};
                     proxy_cache responses;
                     proxy_cache_valid any 1h;
                     add_header X-Cache $upstream_cache_status always;
                 }}
             }}",
            home = home.display(),
            socket = socket.display(),
            upstream = server.address(),
        );
        let nginx = Nginx::start(&server.site(), home, &more);
        wait_until("the cache", || UnixStream::connect(&socket).is_ok());
        Cached {
            server,
            _nginx: nginx,
            socket,
        }
    }

    fn get(&self, target: &str, field: &str) -> HttpResponse {
        let mut client = HttpClient::connect_unix(&self.socket);
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"
        ));
        client.response()
    }
}

fn is_from_cache(response: &HttpResponse) -> bool {
    response.field("x-cache") == Some("HIT")
}

#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn nobody_gets_from_a_shared_cache_what_somebody_else_may_read() {
    let (anna, ben) = (basic("anna", "anna"), basic("ben", "ben"));
    for access in ["", "cache = 'private'", "cache = 'no-store'"] {
        let (files, home) = (AccessFiles::new(), tempfile::tempdir().unwrap());
        let cached = Cached::start(&files, home.path(), access);
        // The cache stores public responses.
        assert_eq!(cached.get("/open/f", &anna).text(), "open");
        assert!(is_from_cache(&cached.get("/open/f", "X: y")), "{access}");
        for anna_is_first in [true, false] {
            for target in CLOSED {
                // Each order has a separate cache key.
                let separator = if target.contains('?') { '&' } else { '?' };
                let target = format!("{target}{separator}first={anna_is_first}");
                let what = format!("{access} {target}");
                let granted = || {
                    let response = cached.get(&target, &anna);
                    assert!(matches!(response.status, 200 | 301), "{what}");
                    assert!(!is_from_cache(&response), "{what}");
                    response
                };
                let refused = |field: &str, status: u16| {
                    let response = cached.get(&target, field);
                    assert_eq!(response.status, status, "{what}");
                    assert!(!is_from_cache(&response), "{what}");
                    assert!(!response.text().contains(SECRET), "{what}");
                };
                if !anna_is_first {
                    refused("X: y", 401);
                }
                let got = granted();
                for _ in 0..2 {
                    refused("X: y", 401);
                    refused(&ben, 403);
                    assert_eq!(granted().body.len(), got.body.len(), "{what}");
                }
            }
        }
        assert_eq!(cached.get("/closed/f", &anna).text(), SECRET);
        drop(cached.server);
    }
}

#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn a_signed_link_leaves_nothing_in_a_shared_cache() {
    for access in ["cache = 'private'", "cache = 'no-store'"] {
        let (files, home) = (AccessFiles::new(), tempfile::tempdir().unwrap());
        let cached = Cached::start(&files, home.path(), access);
        let link = files.signed("/closed/f");
        for _ in 0..2 {
            let response = cached.get(&link, "X: y");
            assert_eq!(response.text(), SECRET, "{access}");
            assert!(!is_from_cache(&response), "{access}");
            assert_eq!(cached.get("/closed/f", "X: y").status, 401, "{access}");
        }
        // The link expires with its key, and the cache does not serve it.
        files.write("key", &"n".repeat(40));
        wait_until("the end of the link", || {
            cached.get(&link, "X: y").status == 401
        });
    }
}
