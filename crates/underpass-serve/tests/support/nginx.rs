//! A real nginx, with a private configuration.

#![allow(dead_code, reason = "every test target uses its own part")]

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// nginx on a port bound by this process, so that connecting needs no waiting.
pub(crate) struct Nginx {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Nginx {
    /// Serves `site` and keeps its own files in `home`; `more` is added to the HTTP configuration.
    pub(crate) fn start(site: &Path, home: &Path, more: &str) -> Nginx {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let configured = configuration(address, site, home, more);
        fs::write(home.join("nginx.conf"), configured).unwrap();
        // A descriptor named in NGINX is inherited instead of binding the address again. As its
        // standard input the socket is in no other process that is started meanwhile.
        let process = Command::new("nginx")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("NGINX", "0;")
            .stdin(OwnedFd::from(listener))
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

fn configuration(address: SocketAddr, site: &Path, home: &Path, more: &str) -> String {
    let (site, home) = (site.display(), home.display());
    format!(
        "daemon off; worker_processes 1; user root; pid {home}/pid;
         error_log {home}/error.log;
         events {{ worker_connections 256; }}
         http {{
             access_log off;
             types {{ text/plain txt; text/html html; }}
             client_body_temp_path {home}/body;
             fastcgi_temp_path {home}/fastcgi; proxy_temp_path {home}/proxy;
             scgi_temp_path {home}/scgi; uwsgi_temp_path {home}/uwsgi;
             absolute_redirect off;
             {more}
             server {{ listen {address}; root {site}; index index.html; }}
         }}"
    )
}
