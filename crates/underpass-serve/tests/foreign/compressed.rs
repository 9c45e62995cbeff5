//! Bodies compressed while they are sent, decoded by other programs.

use std::process::Command;

use sha2::{Digest, Sha256};

use crate::support::{Server, pattern};

/// Returns the output of a shell script, whose `$0` is `argument`.
fn printed(script: &str, argument: &str) -> Vec<u8> {
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", script, argument])
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {reported}");
    output.stdout
}

#[test]
#[ignore = "needs curl, gzip and zstd; run by cargo xtask test"]
fn other_programs_read_the_same_file() {
    let server = Server::configured("compress = ['br', 'zstd', 'gzip']");
    let text = "the same line over and over, and a number\n".repeat(100_000);
    server.write("text.txt", &text);
    server.write("pattern.txt", pattern(3 << 20));
    for (name, expected) in [
        ("text.txt", Sha256::digest(&text)),
        ("pattern.txt", Sha256::digest(pattern(3 << 20))),
    ] {
        let url = format!("http://{}/{name}", server.address());
        for script in [
            "curl -fsS -H 'Accept-Encoding: gzip' \"$0\" | gzip -dc",
            "curl -fsS -H 'Accept-Encoding: zstd' \"$0\" | zstd -dc",
            // Decoded by curl itself.
            "curl -fsS --compressed -H 'Accept-Encoding: br' \"$0\"",
            "curl -fsS --compressed -H 'Accept-Encoding: gzip' \"$0\"",
            "curl -fsS --compressed -H 'Accept-Encoding: zstd' \"$0\"",
        ] {
            let plain = printed(script, &url);
            assert_eq!(Sha256::digest(&plain), expected, "{script} of {name}");
            // Without decoding, the body must differ, or it was not compressed.
            let coded = script.split('|').next().unwrap();
            let coded = coded.replace("--compressed", "");
            let raw = printed(coded.trim(), &url);
            assert_ne!(Sha256::digest(&raw), expected, "{coded} of {name}");
        }
    }
}
