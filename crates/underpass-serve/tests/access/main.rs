//! Access control, seen by clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/nginx.rs"]
mod nginx;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;

mod cookies;
mod links;
mod model;
mod names;
mod networks;
mod recorded;
mod shared_cache;
mod timing;
mod who;

use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use support::Server;
use tempfile::TempDir;
use underpass_testkit::HttpResponse;

/// Files with users, tokens and keys of a server.
struct AccessFiles {
    folder: TempDir,
}

/// Hashes at the lowest cost, which is enough for tests.
fn user_line(user: &str, password: &str) -> String {
    let hash = bcrypt::hash_with_salt(password, 4, *b"0123456789abcdef").unwrap();
    format!("{user}:{}", hash.format_for_version(bcrypt::Version::TwoY))
}

impl AccessFiles {
    /// Makes users `anna` and `ben` with their names as passwords, a token `ci`, and a link key.
    fn new() -> AccessFiles {
        let files = AccessFiles {
            folder: tempfile::tempdir().unwrap(),
        };
        let users = [user_line("anna", "anna"), user_line("ben", "ben")];
        files.write("users", &users.join("\n"));
        files.write("tokens", &token_line("ci", "secret"));
        files.write("key", &"k".repeat(40));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file by renaming, as editors do.
    fn write(&self, name: &str, content: &str) {
        let new = self.path("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Returns a site with all of these files, and more options.
    fn site(&self, before: &str, rules: &str) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        format!(
            "{before}\n[site.access]\nusers = '{}'\ntokens = '{}'\nlink-keys = ['{}']\n{rules}\n",
            path("users"),
            path("tokens"),
            path("key")
        )
    }

    fn server(&self, before: &str, rules: &str) -> Server {
        Server::configured(&self.site(before, rules))
    }

    /// Returns the target of a link that is valid for an hour.
    fn signed(&self, target: &str) -> String {
        let access = underpass_serve::AccessOptions {
            link_keys: vec![self.path("key")],
            ..underpass_serve::AccessOptions::default()
        };
        let expires = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
        underpass_serve::signed_link(&access, target, expires).unwrap()
    }
}

fn token_line(name: &str, token: &str) -> String {
    format!("{name}:sha256:{}", underpass_testkit::sha256(token))
}

fn basic(user: &str, password: &str) -> String {
    let login = BASE64_STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {login}")
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// Returns the status and the challenges of a response.
fn told(response: &HttpResponse) -> String {
    let mut lines = response.head.lines();
    let challenges = lines
        .by_ref()
        .filter_map(|line| line.strip_prefix("WWW-Authenticate: "));
    let challenges: Vec<_> = challenges.collect();
    format!("{} {}", response.status, challenges.join("; "))
        .trim_end()
        .to_owned()
}
