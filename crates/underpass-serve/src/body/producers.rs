//! Answers that are made rather than found: listings, archives and hashes.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Semaphore;
use underpass::{FileRange, Outbox, Piece};

use crate::answer::decide::{FileBody, Response};
use crate::answer::writer::{ResponseContext, push_made};
use crate::body::archive::Archive;
use crate::body::compressed::{self, Compressed, CompressionPermit, Encoder};
use crate::body::listing::html::CONTENT_SECURITY_POLICY;
use crate::body::listing::view::ListingView;
use crate::body::listing::{FolderListing, ListingMemory};
use crate::body::producer::{BodyDelimiter, BodyProducer, Chunk, ProducedBody};
use crate::http::coding::Coding;
use crate::http::decimal::push_decimal;
use crate::http::digest::{FileDigest, HashAlgorithm};
use crate::http::disposition::push_attachment;
use crate::http::status::{BUSY, HttpError, Status};
use crate::limits::{ARCHIVES_MAX, COMPRESSIONS_MAX};
use crate::request::head::Persistence;
use crate::request::query::{ArchiveFormat, ListingFormat};
use crate::request::request_line::{HttpVersion, Method};
use crate::site::digest_cache::{DigestCache, DigestError};
use crate::site::file::SiteFile;
use crate::site::folder::SiteFolder;
use crate::site::rules::{ProducedFields, SiteRules, push_field};

/// What a worker has for answers that are made.
#[derive(Debug)]
pub(crate) struct BodyProducers {
    room: ListingMemory,
    archives: Arc<Semaphore>,
    compressions: Arc<Semaphore>,
    digests: Arc<DigestCache>,
}

/// A hash that is asked for and not known yet.
#[derive(Debug)]
pub(crate) struct HashJob {
    pub(crate) purpose: HashPurpose,
    pub(crate) occasion: Occasion,
}

/// What a hash is for.
#[derive(Debug)]
pub(crate) enum HashPurpose {
    /// It is the answer.
    Line(SiteFile, HashAlgorithm),
    /// It stands in the head of an answer, which is the same without it.
    Field(FileBody),
}

/// What an answer that takes its time depends on, kept until it is there.
#[derive(Debug)]
pub(crate) struct Occasion {
    /// The number of the site.
    pub(crate) site: usize,
    pub(crate) method: Method,
    pub(crate) version: HttpVersion,
    pub(crate) persistence: Persistence,
    /// The origin whose scripts may read it.
    pub(crate) admitted: Option<Box<[u8]>>,
}

/// Why something is not made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProducerError {
    For(HttpError),
    /// The machine's fault.
    By(Errno),
}

impl From<io::Error> for ProducerError {
    fn from(error: io::Error) -> ProducerError {
        ProducerError::By(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<ProducerError> for Response<'_> {
    fn from(declined: ProducerError) -> Self {
        match declined {
            ProducerError::For(refusal) => Response::Plain(refusal),
            ProducerError::By(errno) => Response::Trouble(UNREADABLE, errno),
        }
    }
}

impl Occasion {
    pub(crate) fn of(site: usize, circumstances: &ResponseContext<'_>) -> Occasion {
        Occasion {
            site,
            method: circumstances.method,
            version: circumstances.version,
            persistence: circumstances.persistence,
            admitted: circumstances.admitted.map(Box::from),
        }
    }
}

const CHANGED: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "the file changed while it was read; try again",
);
const UNREADABLE: HttpError = HttpError::new(Status::InternalServerError, "it cannot be read");

impl BodyProducers {
    /// `digests` are those of the whole server.
    pub(crate) fn new(digests: Arc<DigestCache>) -> BodyProducers {
        BodyProducers {
            room: ListingMemory::default(),
            archives: Arc::new(Semaphore::new(ARCHIVES_MAX)),
            compressions: Arc::new(Semaphore::new(COMPRESSIONS_MAX)),
            digests,
        }
    }

    /// Puts the head and the beginning of a listing into the outbox.
    pub(crate) fn list(
        &self,
        folder: SiteFolder,
        view: ListingView,
        circumstances: ResponseContext<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<ProducedBody>, ProducerError> {
        let what = format!("the listing of {:?}", view.path);
        let fields = listing_fields(view.format, circumstances.rules);
        let (listing, opening) = FolderListing::new(view, folder, &self.room)?;
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
        folder: SiteFolder,
        called: &str,
        compression: ArchiveFormat,
        circumstances: ResponseContext<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<ProducedBody>, ProducerError> {
        let Ok(place) = Arc::clone(&self.archives).try_acquire_owned() else {
            return Err(ProducerError::For(BUSY));
        };
        let what = format!("the archive of {:?}", folder.path);
        let name = match folder.path.name() {
            b"" => called.as_bytes().to_vec(),
            name => name.to_vec(),
        };
        let fields = archive_fields(&name, compression, circumstances.rules);
        let archive = Archive::new(folder, &name, place);
        let feed_of: Box<dyn BodyProducer> = match compression {
            ArchiveFormat::Plain => Box::new(archive),
            ArchiveFormat::Zstd => {
                let encoder = Encoder::new(Coding::Zstd, None, None)?;
                Box::new(Compressed::new(archive, encoder))
            }
        };
        let opening = Chunk::new();
        Ok(feed(feed_of, opening, &fields, what, circumstances, outbox))
    }

    /// A place among the answers that are compressed at once, if one is free.
    pub(crate) fn place(&self) -> Option<CompressionPermit> {
        Arc::clone(&self.compressions).try_acquire_owned().ok()
    }

    /// Puts the head of an answer that is compressed into the outbox.
    pub(crate) fn compress(
        &self,
        file: SiteFile,
        coding: Coding,
        place: CompressionPermit,
        circumstances: ResponseContext<'_>,
        outbox: &mut Outbox,
    ) -> Result<Option<ProducedBody>, ProducerError> {
        let size = file.state.size;
        let encoder = Encoder::new(coding, Some(size), Some(place))?;
        let mut fields = file.state.fields.clone();
        if let Some(name) = &file.save_as {
            push_attachment(&mut fields, name);
        }
        fields.extend_from_slice(b"\r\nContent-Type: ");
        file.state.label.media.push_to(&mut fields);
        let content = compressed::WholeFile(FileRange {
            file: Arc::clone(&file.state.descriptor),
            offset: 0,
            len: size,
        });
        let feed_of = Box::new(Compressed::new(content, encoder));
        let what = format!("{:?} as {}", file.path, coding.name());
        let opening = Chunk::new();
        Ok(feed(feed_of, opening, &fields, what, circumstances, outbox))
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, purpose: &HashPurpose) -> Result<FileDigest, DigestError> {
        let (file, algorithm) = match purpose {
            HashPurpose::Line(file, algorithm) => (file, *algorithm),
            HashPurpose::Field(content) => (content.file(), HashAlgorithm::Sha256),
        };
        let descriptor = Arc::clone(&file.state.descriptor);
        self.digests.find(descriptor, algorithm).await
    }
}

/// Puts the head and the opening of a body into the outbox. There is no body for HEAD.
fn feed(
    feed: Box<dyn BodyProducer>,
    opening: Chunk,
    fields: &[u8],
    what: String,
    mut circumstances: ResponseContext<'_>,
    outbox: &mut Outbox,
) -> Option<ProducedBody> {
    let delimiter = BodyDelimiter::of(circumstances.version);
    let mut fields = fields.to_vec();
    match circumstances.version {
        HttpVersion::Http11 => fields.extend_from_slice(b"\r\nTransfer-Encoding: chunked"),
        HttpVersion::Http10 => circumstances.persistence = Persistence::Close,
    }
    push_made(&fields, &circumstances, outbox);
    match circumstances.method {
        Method::Head => None,
        _ => Some(ProducedBody::new(feed, opening, delimiter, what, outbox)),
    }
}

fn listing_fields(format: ListingFormat, rules: &SiteRules) -> Vec<u8> {
    let own = ProducedFields {
        varies_by: Some("Accept"),
        ..ProducedFields::default()
    };
    let (own, media) = match format {
        ListingFormat::Json => (own, "application/json"),
        ListingFormat::Html => {
            let own = ProducedFields {
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

fn archive_fields(name: &[u8], compression: ArchiveFormat, rules: &SiteRules) -> Vec<u8> {
    let mut fields = rules.made_fields(ProducedFields::default());
    push_field(&mut fields, "Cache-Control", "no-cache");
    push_field(&mut fields, "Content-Type", compression.media_type());
    let saved = [name, compression.extension().as_bytes()].concat();
    push_attachment(&mut fields, &saved);
    fields
}

/// Puts the answer with a hash into the outbox. HEAD is answered without knowing it.
pub(crate) fn reply_hash(
    file: &SiteFile,
    digest: Result<FileDigest, DigestError>,
    circumstances: &ResponseContext<'_>,
    outbox: &mut Outbox,
) -> Result<(), ProducerError> {
    let line = match digest {
        Ok(digest) => digest.line(file.path.name()),
        Err(DigestError::Busy) => return Err(ProducerError::For(BUSY)),
        Err(DigestError::Changed) => return Err(ProducerError::For(CHANGED)),
        Err(DigestError::Failed(errno)) => return Err(ProducerError::By(errno)),
    };
    let mut fields = circumstances.rules.made_fields(ProducedFields::default());
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
