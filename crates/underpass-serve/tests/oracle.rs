//! nginx gets the same bytes as this server. Where the two differ, the difference is listed here
//! with its reason; one that is not listed, or that is listed and gone, is a failure.
//!
//! Compared are the statuses, what of the file arrives, where a redirect leads, and what becomes
//! of the connection. Reasons name the clause that decides, or say that it is this server's choice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/differences.rs"]
mod differences;
mod support;

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use differences::DIFFERENCES;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use support::Client;
use support::digest::sketch;
use support::rows;

/// nginx on a port that this process bound, so that there is nothing to wait for.
struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    fn start(site: &Path, home: &Path) -> Nginx {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        fs::write(home.join("nginx.conf"), configuration(address, site, home)).unwrap();
        // A descriptor named in NGINX is taken over instead of binding the address anew.
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let process = Command::new("nginx")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("NGINX", format!("{};", listener.as_raw_fd()))
            .arg("-p")
            .arg(home)
            .arg("-c")
            .arg(home.join("nginx.conf"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Nginx { process, address }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(master) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(master, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

fn configuration(address: SocketAddr, site: &Path, home: &Path) -> String {
    let (site, home) = (site.display(), home.display());
    format!(
        "daemon off; worker_processes 1; user root; pid {home}/pid;
         error_log {home}/error.log;
         events {{ worker_connections 64; }}
         http {{
             access_log off;
             types {{ text/plain txt; text/html html; }}
             client_body_temp_path {home}/body;
             fastcgi_temp_path {home}/fastcgi; proxy_temp_path {home}/proxy;
             scgi_temp_path {home}/scgi; uwsgi_temp_path {home}/uwsgi;
             absolute_redirect off;
             server {{ listen {address}; root {site}; index index.html; }}
         }}"
    )
}

/// What a server makes of a request, as one line.
fn ask(address: SocketAddr, request: &str, file: &[u8]) -> String {
    let mut client = Client::connect(address);
    let tag = {
        client.send("GET /f.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.answer().field("etag").unwrap().to_owned()
    };
    let request = rows::fill_in(request, &tag);
    let method = request.split(' ').next().unwrap();
    let mut client = Client::connect(address);
    client.send(&request);
    match client.try_answer(method) {
        Ok(answer) => format!("{} {}", sketch(method, &answer, file), client.outcome()),
        Err(_) => "no answer".to_owned(),
    }
}

#[test]
#[ignore = "needs nginx-light; run by cargo xtask test"]
fn every_difference_from_nginx_is_intended() {
    let (server, file) = rows::site();
    let home = tempfile::tempdir().unwrap();
    let nginx = Nginx::start(&server.site(), home.path());
    let mut complaints = String::new();
    let mut unseen: HashSet<&str> = HashSet::from_iter(differences().map(|(request, ..)| request));
    for (request, _) in rows::all() {
        let theirs = shown(&ask(nginx.address, &request, &file));
        let ours = shown(&ask(server.address(), &request, &file));
        let request = shown(&request);
        unseen.remove(&request[..]);
        let listed = differences().find(|(listed, ..)| *listed == request);
        match listed {
            None if theirs == ours => {}
            Some((_, listed, _)) if listed == theirs && theirs != ours => {}
            _ => writeln!(
                complaints,
                "{request}\n    nginx: {theirs}\n    ours:  {ours}"
            )
            .unwrap(),
        }
    }
    for request in unseen {
        writeln!(complaints, "{request}\n    is listed and never asked").unwrap();
    }
    assert!(complaints.is_empty(), "not as listed:\n{complaints}");
}

/// The listed differences: request, what nginx makes of it, and the reason.
fn differences() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    DIFFERENCES.iter().flat_map(|(reason, rows)| {
        let row = |(request, theirs): &(&'static str, &'static str)| (*request, *theirs, *reason);
        rows.iter().map(row)
    })
}

/// On one line, and not too long a one: what most requests begin with is left away.
fn shown(text: &str) -> String {
    const USUAL: &str = "GET /f.txt HTTP/1.1\r\nHost: a\r\n";
    const SHOWN_CHARS_MAX: usize = 64;
    let usual = text.strip_prefix(USUAL);
    let escaped: String = usual
        .map_or(text.to_owned(), |rest| format!("… {rest}"))
        .chars()
        .map(|char| match char {
            '\r' => "\\r".into(),
            '\n' => "\\n".into(),
            '"' => "'".into(),
            char if char.is_control() => format!("\\x{:02x}", char as u32),
            char => char.to_string(),
        })
        .collect();
    match escaped.char_indices().nth(SHOWN_CHARS_MAX) {
        None => escaped,
        Some((end, _)) => format!("{}… {} bytes", &escaped[..end], text.len()),
    }
}
