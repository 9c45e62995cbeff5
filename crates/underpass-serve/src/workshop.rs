//! Answers that are made rather than found: listings, archives and hashes.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Semaphore;
use underpass::Outbox;

use crate::archive::Archive;
use crate::archive::zstd::Compressed;
use crate::decimal::push_decimal;
use crate::digest::{Algorithm, Digest, Digests, NoDigest};
use crate::disposition::push_attachment;
use crate::feed::{Batch, Delimiter, Feed, Feeding};
use crate::file::File;
use crate::folder::Folder;
use crate::head::Persistence;
use crate::limits::ARCHIVES_MAX;
use crate::listing::html::CONTENT_SECURITY_POLICY;
use crate::listing::{Listing, Room, View};
use crate::query::{Compression, Format};
use crate::reply::{Circumstances, push_made, push_refusal};
use crate::request_line::{Method, Version};
use crate::status::{Refusal, Status};

/// What a worker has for answers that are made.
#[derive(Debug)]
pub(crate) struct Workshop {
    room: Room,
    archives: Arc<Semaphore>,
    digests: Arc<Digests>,
}

/// A hash that is asked for and not known yet.
#[derive(Debug)]
pub(crate) struct Hashing {
    pub(crate) file: File,
    pub(crate) algorithm: Algorithm,
    pub(crate) circumstances: Circumstances,
}

const NOSNIFF: &[u8] = b"\r\nX-Content-Type-Options: nosniff";
const BUSY: Refusal = Refusal::new(
    Status::ServiceUnavailable,
    "too many such answers are being made; try again later",
);
const CHANGED: Refusal = Refusal::new(
    Status::ServiceUnavailable,
    "the file changed while it was read; try again",
);
const UNREADABLE: Refusal = Refusal::new(Status::InternalServerError, "it cannot be read");

impl Workshop {
    /// `digests` are those of the whole server.
    pub(crate) fn new(digests: Arc<Digests>) -> Workshop {
        Workshop {
            room: Room::default(),
            archives: Arc::new(Semaphore::new(ARCHIVES_MAX)),
            digests,
        }
    }

    /// Puts the head and the beginning of a listing into the outbox.
    pub(crate) fn list(
        &self,
        folder: Folder,
        view: View,
        circumstances: Circumstances,
        outbox: &mut Outbox,
    ) -> io::Result<Option<Feeding>> {
        let what = format!("the listing of {:?}", view.path);
        let fields = listing_fields(view.format);
        let (listing, opening) = Listing::new(view, folder, &self.room)?;
        Ok(feed(
            Box::new(listing),
            opening,
            &fields,
            what,
            circumstances,
            outbox,
        ))
    }

    /// Puts the head of an archive into the outbox. `called` is what the root is called.
    pub(crate) fn pack(
        &self,
        folder: Folder,
        called: &str,
        compression: Compression,
        circumstances: Circumstances,
        outbox: &mut Outbox,
    ) -> io::Result<Option<Feeding>> {
        let Ok(place) = Arc::clone(&self.archives).try_acquire_owned() else {
            push_refusal(BUSY, &circumstances, outbox);
            return Ok(None);
        };
        let what = format!("the archive of {:?}", folder.path);
        let name = match folder.path.name() {
            b"" => called.as_bytes().to_vec(),
            name => name.to_vec(),
        };
        let fields = archive_fields(&name, compression);
        let archive = Archive::new(folder, &name, place);
        let feed_of: Box<dyn Feed> = match compression {
            Compression::Plain => Box::new(archive),
            Compression::Zstd => Box::new(Compressed::new(archive)?),
        };
        let opening = Batch::new();
        Ok(feed(feed_of, opening, &fields, what, circumstances, outbox))
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, hashing: &Hashing) -> Result<Digest, NoDigest> {
        let file = Arc::clone(&hashing.file.state.descriptor);
        self.digests.find(file, hashing.algorithm).await
    }
}

/// Puts the head and the opening of a body into the outbox. There is no body for HEAD.
fn feed(
    feed: Box<dyn Feed>,
    opening: Batch,
    fields: &[u8],
    what: String,
    mut circumstances: Circumstances,
    outbox: &mut Outbox,
) -> Option<Feeding> {
    let delimiter = Delimiter::of(circumstances.version);
    let mut fields = fields.to_vec();
    match circumstances.version {
        Version::Http11 => fields.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        Version::Http10 => circumstances.persistence = Persistence::Close,
    }
    push_made(&fields, &circumstances, outbox);
    match circumstances.method {
        Method::Head => None,
        _ => Some(Feeding::new(feed, opening, delimiter, what, outbox)),
    }
}

fn listing_fields(format: Format) -> Vec<u8> {
    let mut fields = b"\r\nVary: Accept\r\nCache-Control: no-cache".to_vec();
    fields.extend_from_slice(NOSNIFF);
    match format {
        Format::Json => fields.extend_from_slice(b"\r\nContent-Type: application/json"),
        Format::Html => {
            fields.extend_from_slice(
                b"\r\nContent-Type: text/html; charset=utf-8\
                  \r\nReferrer-Policy: no-referrer\
                  \r\nContent-Security-Policy: ",
            );
            fields.extend_from_slice(CONTENT_SECURITY_POLICY.as_bytes());
        }
    }
    fields
}

fn archive_fields(name: &[u8], compression: Compression) -> Vec<u8> {
    let mut fields = b"\r\nCache-Control: no-cache\r\nContent-Type: ".to_vec();
    fields.extend_from_slice(compression.media_type().as_bytes());
    fields.extend_from_slice(NOSNIFF);
    let saved = [name, compression.extension().as_bytes()].concat();
    push_attachment(&mut fields, &saved);
    fields
}

/// Puts the answer with a hash, or without one, into the outbox. HEAD is answered without knowing
/// it.
pub(crate) fn reply_hash(
    hashing: &Hashing,
    digest: Result<Digest, NoDigest>,
    outbox: &mut Outbox,
) -> Option<Errno> {
    let Hashing {
        file,
        circumstances,
        ..
    } = hashing;
    let line = match digest {
        Ok(digest) => digest.line(file.path.name()),
        Err(NoDigest::Busy) => {
            push_refusal(BUSY, circumstances, outbox);
            return None;
        }
        Err(NoDigest::Changed) => {
            push_refusal(CHANGED, circumstances, outbox);
            return None;
        }
        Err(NoDigest::Failed(errno)) => {
            push_refusal(UNREADABLE, circumstances, outbox);
            return Some(errno);
        }
    };
    let mut fields = Vec::with_capacity(256);
    file.state.validators.push_to(&mut fields);
    fields.extend_from_slice(b"\r\nContent-Type: text/plain; charset=utf-8");
    fields.extend_from_slice(NOSNIFF);
    fields.extend_from_slice(b"\r\nContent-Length: ");
    push_decimal(&mut fields, line.len() as u64);
    push_made(&fields, circumstances, outbox);
    if circumstances.method != Method::Head {
        outbox.push(underpass::Piece::Bytes(line));
    }
    None
}
