//! Answers that are made rather than found: listings, archives and hashes.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Semaphore;
use underpass::{FileRange, Outbox, Piece};

use crate::answer::decide::{Answer, Content};
use crate::answer::reply::{Circumstances, push_made};
use crate::body::archive::Archive;
use crate::body::compressed::{self, Compressed, Encoder, Place};
use crate::body::feed::{Batch, Delimiter, Feed, Feeding};
use crate::body::listing::html::CONTENT_SECURITY_POLICY;
use crate::body::listing::view::View;
use crate::body::listing::{Listing, Room};
use crate::http::coding::Coding;
use crate::http::decimal::push_decimal;
use crate::http::digest::{Algorithm, Digest};
use crate::http::disposition::push_attachment;
use crate::http::status::{BUSY, Refusal, Status};
use crate::limits::{ARCHIVES_MAX, COMPRESSIONS_MAX};
use crate::request::head::Persistence;
use crate::request::query::{Compression, Format};
use crate::request::request_line::{Method, Version};
use crate::site::digest::{Digests, NoDigest};
use crate::site::file::File;
use crate::site::folder::Folder;
use crate::site::rules::{Own, Rules, push_field};

/// What a worker has for answers that are made.
#[derive(Debug)]
pub(crate) struct Workshop {
    room: Room,
    archives: Arc<Semaphore>,
    compressions: Arc<Semaphore>,
    digests: Arc<Digests>,
}

/// A hash that is asked for and not known yet.
#[derive(Debug)]
pub(crate) struct Hashing {
    pub(crate) purpose: Purpose,
    pub(crate) occasion: Occasion,
}

/// What a hash is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// It is the answer.
    Line(File, Algorithm),
    /// It stands in the head of an answer, which is the same without it.
    Field(Content),
}

/// What an answer that takes its time depends on, kept until it is there.
#[derive(Debug)]
pub(crate) struct Occasion {
    /// The number of the site.
    pub(crate) site: usize,
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) persistence: Persistence,
    /// The origin whose scripts may read it.
    pub(crate) admitted: Option<Box<[u8]>>,
}

/// Why something is not made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declined {
    For(Refusal),
    /// The machine's fault.
    By(Errno),
}

impl From<io::Error> for Declined {
    fn from(error: io::Error) -> Declined {
        Declined::By(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Declined> for Answer<'_> {
    fn from(declined: Declined) -> Self {
        match declined {
            Declined::For(refusal) => Answer::Plain(refusal),
            Declined::By(errno) => Answer::Trouble(UNREADABLE, errno),
        }
    }
}

impl Occasion {
    pub(crate) fn of(site: usize, circumstances: &Circumstances<'_>) -> Occasion {
        Occasion {
            site,
            method: circumstances.method,
            version: circumstances.version,
            persistence: circumstances.persistence,
            admitted: circumstances.admitted.map(Box::from),
        }
    }
}

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
            compressions: Arc::new(Semaphore::new(COMPRESSIONS_MAX)),
            digests,
        }
    }

    /// Puts the head and the beginning of a listing into the outbox.
    pub(crate) fn list(
        &self,
        folder: Folder,
        view: View,
        circumstances: Circumstances<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Feeding>, Declined> {
        let what = format!("the listing of {:?}", view.path);
        let fields = listing_fields(view.format, circumstances.rules);
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
        circumstances: Circumstances<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Feeding>, Declined> {
        let Ok(place) = Arc::clone(&self.archives).try_acquire_owned() else {
            return Err(Declined::For(BUSY));
        };
        let what = format!("the archive of {:?}", folder.path);
        let name = match folder.path.name() {
            b"" => called.as_bytes().to_vec(),
            name => name.to_vec(),
        };
        let fields = archive_fields(&name, compression, circumstances.rules);
        let archive = Archive::new(folder, &name, place);
        let feed_of: Box<dyn Feed> = match compression {
            Compression::Plain => Box::new(archive),
            Compression::Zstd => {
                let encoder = Encoder::new(Coding::Zstd, None, None)?;
                Box::new(Compressed::new(archive, encoder))
            }
        };
        let opening = Batch::new();
        Ok(feed(feed_of, opening, &fields, what, circumstances, outbox))
    }

    /// A place among the answers that are compressed at once, if one is free.
    pub(crate) fn place(&self) -> Option<Place> {
        Arc::clone(&self.compressions).try_acquire_owned().ok()
    }

    /// Puts the head of an answer that is compressed into the outbox.
    pub(crate) fn compress(
        &self,
        file: File,
        coding: Coding,
        place: Place,
        circumstances: Circumstances<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<Feeding>, Declined> {
        let size = file.state.size;
        let encoder = Encoder::new(coding, Some(size), Some(place))?;
        let mut fields = file.state.fields.clone();
        if let Some(name) = &file.save_as {
            push_attachment(&mut fields, name);
        }
        fields.extend_from_slice(b"\r\nContent-Type: ");
        file.state.label.media.push_to(&mut fields);
        let content = compressed::Content(FileRange {
            file: Arc::clone(&file.state.descriptor),
            offset: 0,
            len: size,
        });
        let feed_of = Box::new(Compressed::new(content, encoder));
        let what = format!("{:?} as {}", file.path, coding.name());
        let opening = Batch::new();
        Ok(feed(feed_of, opening, &fields, what, circumstances, outbox))
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, purpose: &Purpose) -> Result<Digest, NoDigest> {
        let (file, algorithm) = match purpose {
            Purpose::Line(file, algorithm) => (file, *algorithm),
            Purpose::Field(content) => (content.file(), Algorithm::Sha256),
        };
        let descriptor = Arc::clone(&file.state.descriptor);
        self.digests.find(descriptor, algorithm).await
    }
}

/// Puts the head and the opening of a body into the outbox. There is no body for HEAD.
fn feed(
    feed: Box<dyn Feed>,
    opening: Batch,
    fields: &[u8],
    what: String,
    mut circumstances: Circumstances<'_>,
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

fn listing_fields(format: Format, rules: &Rules) -> Vec<u8> {
    let own = Own {
        varies_by: Some("Accept"),
        ..Own::default()
    };
    let (own, media) = match format {
        Format::Json => (own, "application/json"),
        Format::Html => {
            let own = Own {
                referrer_policy: Some("no-referrer"),
                content_security_policy: Some(CONTENT_SECURITY_POLICY.as_str()),
                ..own
            };
            (own, "text/html; charset=utf-8")
        }
    };
    let mut fields = rules.made_fields(own);
    push_field(&mut fields, "Cache-Control", "no-cache");
    push_field(&mut fields, "Content-Type", media);
    fields
}

fn archive_fields(name: &[u8], compression: Compression, rules: &Rules) -> Vec<u8> {
    let mut fields = rules.made_fields(Own::default());
    push_field(&mut fields, "Cache-Control", "no-cache");
    push_field(&mut fields, "Content-Type", compression.media_type());
    let saved = [name, compression.extension().as_bytes()].concat();
    push_attachment(&mut fields, &saved);
    fields
}

/// Puts the answer with a hash into the outbox. HEAD is answered without knowing it.
pub(crate) fn reply_hash(
    file: &File,
    digest: Result<Digest, NoDigest>,
    circumstances: &Circumstances<'_>,
    outbox: &mut Outbox,
) -> Result<(), Declined> {
    let line = match digest {
        Ok(digest) => digest.line(file.path.name()),
        Err(NoDigest::Busy) => return Err(Declined::For(BUSY)),
        Err(NoDigest::Changed) => return Err(Declined::For(CHANGED)),
        Err(NoDigest::Failed(errno)) => return Err(Declined::By(errno)),
    };
    let mut fields = circumstances.rules.made_fields(Own::default());
    file.state.validators.push_to(&mut fields);
    push_field(&mut fields, "Content-Type", "text/plain; charset=utf-8");
    fields.extend_from_slice(b"\r\nContent-Length: ");
    push_decimal(&mut fields, line.len() as u64);
    push_made(&fields, circumstances, outbox);
    if circumstances.method != Method::Head {
        outbox.push(Piece::Bytes(line));
    }
    Ok(())
}
