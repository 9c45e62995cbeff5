//! Requests of uploads over raw sockets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::net::sockopt::set_socket_linger;
use underpass_receive::{Area, UPLOADS_FOLDER, UploadId, UploadRecord};
use underpass_testkit::{HttpClient, HttpResponse, wait_until};

use crate::support::Server;
use underpass_serve::{ServerOptions, SiteOptions};

/// Fields of every request of tus.
pub(crate) const TUS: &str = "Tus-Resumable: 1.0.0";
pub(crate) const TUS_TYPE: &str = "Content-Type: application/offset+octet-stream";
pub(crate) const IETF_TYPE: &str = "Content-Type: application/partial-upload";

/// Returns a server whose site takes files in under `/in`, with more options of that.
pub(crate) fn server(options: &str) -> Server {
    let comma = if options.is_empty() { "" } else { ", " };
    site(&format!("upload = [{{ path = '/in'{comma}{options} }}]\n"))
}

/// Returns a server whose site has a folder `/in`, with this configuration.
pub(crate) fn site(configuration: &str) -> Server {
    let text = format!("[[site]]\n{configuration}");
    let site = ServerOptions::parse(&text).unwrap().sites.remove(0);
    Server::with(|options| {
        let root = std::mem::take(&mut options.sites[0].root);
        std::fs::create_dir_all(root.join("in")).unwrap();
        options.sites[0] = SiteOptions { root, ..site };
    })
}

/// A head, from a line as `PATCH /in/a` and fields.
pub(crate) fn head(line: &str, fields: &[&str], length: Option<usize>) -> String {
    let mut head = format!("{line} HTTP/1.1\r\nHost: a\r\n");
    for field in fields.iter().filter(|field| !field.is_empty()) {
        head.push_str(field);
        head.push_str("\r\n");
    }
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    head + "\r\n"
}

/// Sends a request on a new connection, and returns the final response.
pub(crate) fn ask(
    address: SocketAddr,
    line: &str,
    fields: &[&str],
    body: impl AsRef<[u8]>,
) -> HttpResponse {
    let (_, response) = ask_all(address, line, fields, body);
    response
}

/// Sends a request on a new connection, and returns the interim responses and the final one.
pub(crate) fn ask_all(
    address: SocketAddr,
    line: &str,
    fields: &[&str],
    body: impl AsRef<[u8]>,
) -> (Vec<HttpResponse>, HttpResponse) {
    let mut client = HttpClient::connect(address);
    let body = body.as_ref();
    let length = (!body.is_empty()).then_some(body.len());
    client.send(head(line, fields, length));
    client.send(body);
    let mut interim = Vec::new();
    loop {
        let mut response = client.head();
        if response.status < 200 {
            interim.push(response);
            continue;
        }
        // A listing is not of interest.
        let length = response.length().ok().filter(|_| response.status != 204);
        if let Some(length) = length.filter(|_| !line.starts_with("HEAD ")) {
            response.body = client.read_exact(length).unwrap();
        }
        return (interim, response);
    }
}

/// Opens a connection and sends a request with the first bytes of a body of `length` bytes.
pub(crate) fn start(
    address: SocketAddr,
    line: &str,
    fields: &[&str],
    (length, sent): (usize, &[u8]),
) -> HttpClient {
    let mut client = HttpClient::connect(address);
    client.send(head(line, fields, Some(length)));
    client.send(sent);
    client
}

/// Ends a connection by a reset.
pub(crate) fn reset(client: HttpClient) {
    set_socket_linger(&client.socket, Some(std::time::Duration::ZERO)).unwrap();
}

/// A pair of `Upload-Metadata`.
pub(crate) fn pair(key: &str, value: impl AsRef<[u8]>) -> String {
    format!("{key} {}", BASE64_STANDARD.encode(value))
}

/// The field that names a file.
pub(crate) fn named(name: impl AsRef<[u8]>) -> String {
    format!("Upload-Metadata: {}", pair("filename", name))
}

/// Creates an upload of tus under a path, and returns the target of its requests.
#[track_caller]
pub(crate) fn create(address: SocketAddr, path: &str, name: &str, length: usize) -> String {
    let length = format!("Upload-Length: {length}");
    let fields = [TUS, &length, &named(name)];
    let created = ask(address, &format!("POST {path}"), &fields, "");
    assert_eq!(created.status, 201, "{}", created.head);
    target(path, &created)
}

/// The target that a response leads to.
#[track_caller]
pub(crate) fn target(path: &str, response: &HttpResponse) -> String {
    let location = response.field("location").unwrap();
    assert!(location.starts_with("?upload="), "{location}");
    format!("{path}{location}")
}

pub(crate) fn id(target: &str) -> UploadId {
    let (_, id) = target.split_once("?upload=").unwrap();
    UploadId::parse(id.as_bytes()).unwrap()
}

/// Sends a PATCH of tus.
pub(crate) fn patch(address: SocketAddr, target: &str, offset: usize, body: &[u8]) -> HttpResponse {
    let offset = format!("Upload-Offset: {offset}");
    ask(
        address,
        &format!("PATCH {target}"),
        &[TUS, TUS_TYPE, &offset],
        body,
    )
}

/// Sends a HEAD of tus.
pub(crate) fn look(address: SocketAddr, target: &str) -> HttpResponse {
    ask(address, &format!("HEAD {target}"), &[TUS], "")
}

/// The offset in a response.
#[track_caller]
pub(crate) fn offset(response: &HttpResponse) -> usize {
    let offset = response.field("upload-offset");
    let offset = offset.unwrap_or_else(|| panic!("no offset: {}", response.head));
    offset.parse().unwrap()
}

/// The files of uploads beneath a folder.
pub(crate) struct Uploads {
    folder: PathBuf,
}

impl Uploads {
    pub(crate) fn of(folder: &Path) -> Uploads {
        Uploads {
            folder: folder.to_owned(),
        }
    }

    pub(crate) fn area(&self) -> std::sync::Arc<Area> {
        let root = std::fs::File::open(&self.folder).unwrap();
        std::sync::Arc::new(Area::open(std::os::fd::AsFd::as_fd(&root), None).unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        let uploads = std::fs::read_dir(self.folder.join(UPLOADS_FOLDER));
        uploads.map_or(0, Iterator::count)
    }

    pub(crate) fn size(&self, target: &str) -> u64 {
        let file = self.folder.join(UPLOADS_FOLDER).join(id(target).as_str());
        file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Waits until a partial file has so many bytes.
    #[track_caller]
    pub(crate) fn await_size(&self, target: &str, size: usize) {
        wait_until("bytes in the file", || self.size(target) >= size as u64);
    }

    pub(crate) fn record(&self, target: &str) -> UploadRecord {
        self.area().record(&id(target)).unwrap()
    }

    /// Changes the seconds at which an upload expires.
    pub(crate) fn set_expires(&self, target: &str, expires: u64) {
        let path = self.folder.join(UPLOADS_FOLDER);
        let path = path.join(format!("{}.json", id(target)));
        let text = std::fs::read_to_string(&path).unwrap();
        let old = self.record(target).expires;
        let new = text.replace(
            &format!("\"expires\":{old}"),
            &format!("\"expires\":{expires}"),
        );
        assert_ne!(new, text);
        std::fs::write(path, new).unwrap();
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}
