//! Uploads over HTTPS.

use underpass_serve::{ServerOptions, UploadOptions};
use underpass_testkit::{content, sha256};

use crate::put::{assert_nothing_partial, request};
use crate::tls::{Authority, connect, serve};

#[test]
fn bodies_of_any_size_arrive_over_https() {
    let authority = Authority::new();
    let server = serve(&authority, |options: &mut ServerOptions| {
        options.sites[0].uploads = vec![UploadOptions {
            keep_free: 0,
            overwrite: true,
            ..UploadOptions::default()
        }];
    });
    let config = authority.client().config();
    let mut client = connect(&config, server.address(), "localhost");
    for size in [0, 1, 16_384, 33_000, 100_000, 262_144, 3_000_000] {
        let body = content(9, size);
        client.send(request("PUT", "/f", "", &body));
        let stored = client.response();
        assert!([201, 204].contains(&stored.status), "{size} {stored:?}");
        assert_eq!(client.get("/f").sha256(), sha256(&body), "{size}");
        let (half, rest) = body.split_at(size / 2);
        let head = "PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send(head);
        for part in [half, rest].into_iter().filter(|part| !part.is_empty()) {
            let head = format!("{:x}\r\n", part.len());
            client.send([head.as_bytes(), part, b"\r\n"].concat());
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.response().status, 204, "{size}");
        assert_eq!(client.get("/f").sha256(), sha256(&body), "{size}");
    }
    assert_nothing_partial(&server);
}
