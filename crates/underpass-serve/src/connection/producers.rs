//! Starts bodies that are produced while they are sent, and limits how many run concurrently.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Semaphore;
use underpass::FileRange;
use underpass_http::fields::coding::Coding;
use underpass_http::fields::writer::{push_attachment, push_field};
use underpass_http::status::{HttpError, Status};
use underpass_net::DescriptorRoom;

use crate::answer::decide::Production;
use crate::answer::text::TextResponse;
use crate::body::archive::Archive;
use crate::body::compressed::{Compressed, CompressionPermit, Encoder, WholeFile};
use crate::body::listing::FolderListing;
use crate::body::listing::embedded::PageFields;
use crate::body::listing::view::ListingView;
use crate::body::producer::{BodyProducer, Chunk, StartedBody};
use crate::body::query::{ArchiveFormat, ListingFormat};
use crate::limits::BUSY;
use crate::limits::{
    ARCHIVE_DESCRIPTORS, ARCHIVES_MAX, COMPRESSING_MAX, COMPRESSIONS_MAX, LISTED_BYTES_MAX,
};
use crate::rules::ProducedFields;
use crate::site::file::SiteFile;
use crate::site::folder::SiteFolder;
use crate::site::site_rules::SiteRules;
use crate::site::sites::ServedSite;

/// The resources that the produced bodies of a worker share.
#[derive(Debug)]
pub(crate) struct BodyProducers {
    listing_memory: Arc<Semaphore>,
    archives: Arc<Semaphore>,
    compressions: Arc<Semaphore>,
    /// Turns for steps that take processor time.
    pub(crate) turns: Arc<Semaphore>,
}

impl Default for BodyProducers {
    fn default() -> BodyProducers {
        BodyProducers {
            listing_memory: Arc::new(Semaphore::new(LISTED_BYTES_MAX)),
            archives: Arc::new(Semaphore::new(ARCHIVES_MAX)),
            compressions: Arc::new(Semaphore::new(COMPRESSIONS_MAX)),
            turns: Arc::new(Semaphore::new(COMPRESSING_MAX)),
        }
    }
}

impl BodyProducers {
    /// Returns a permit to compress one more body, if one is free.
    pub(crate) fn compression_permit(&self) -> Option<CompressionPermit> {
        Arc::clone(&self.compressions).try_acquire_owned().ok()
    }

    /// Starts a body, up to the part that is known before a disk is read.
    ///
    /// # Errors
    /// The response to send instead.
    pub(crate) fn start(
        &self,
        production: Production,
        site: &ServedSite,
        room: DescriptorRoom<'_>,
    ) -> Result<StartedBody, TextResponse> {
        match production {
            Production::Listing(folder, view) => self.list(folder, view, &site.rules),
            Production::Archive(folder, format) => self.archive(folder, format, site, room),
            Production::Compressed(file, coding, permit) => compress(file, coding, permit),
        }
        .map_err(|error| match error {
            StartError::Busy => TextResponse::new(BUSY),
            StartError::Failed(errno) => TextResponse::caused(UNREADABLE, errno),
        })
    }

    fn list(
        &self,
        folder: SiteFolder,
        view: ListingView,
        rules: &SiteRules,
    ) -> Result<StartedBody, StartError> {
        let what = format!("the listing of {:?}", view.path);
        let fields = listing_fields(&view, rules);
        let (listing, opening) = FolderListing::new(view, folder, &self.listing_memory)?;
        Ok(StartedBody {
            producer: Box::new(listing),
            opening,
            fields,
            what,
            reserved: None,
        })
    }

    fn archive(
        &self,
        folder: SiteFolder,
        format: ArchiveFormat,
        site: &ServedSite,
        room: DescriptorRoom<'_>,
    ) -> Result<StartedBody, StartError> {
        let permit = Arc::clone(&self.archives).try_acquire_owned();
        let permit = permit.map_err(|_| StartError::Busy)?;
        let reserved = room.reserve(ARCHIVE_DESCRIPTORS);
        let reserved = reserved.ok_or(StartError::Busy)?;
        let what = format!("the archive of {:?}", folder.path);
        let name = match folder.path.name() {
            b"" => site.called.as_bytes().to_vec(),
            name => name.to_vec(),
        };
        let archive = Archive::new(folder, &name, permit);
        let producer: Box<dyn BodyProducer> = match format {
            ArchiveFormat::Plain => Box::new(archive),
            ArchiveFormat::Zstd => {
                let encoder = Encoder::new(Coding::Zstd, None, None)?;
                Box::new(Compressed::new(archive, encoder))
            }
        };
        Ok(StartedBody {
            producer,
            opening: Chunk::new(),
            fields: archive_fields(&name, format, &site.rules),
            what,
            reserved: Some(reserved),
        })
    }
}

/// The reason why a body could not be started.
enum StartError {
    Busy,
    Failed(Errno),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// The response if a file or folder cannot be read.
pub(crate) const UNREADABLE: HttpError = HttpError::new(
    Status::InternalServerError,
    "the file or folder cannot be read",
);

fn compress(
    file: SiteFile,
    coding: Coding,
    permit: CompressionPermit,
) -> Result<StartedBody, StartError> {
    let size = file.state.stamp.size;
    let encoder = Encoder::new(coding, Some(size), Some(permit))?;
    let mut fields = file.state.fields.clone();
    if let Some(name) = &file.save_as {
        push_attachment(&mut fields, name);
    }
    fields.extend_from_slice(&file.state.label.content_type);
    let content = WholeFile(FileRange {
        file: Arc::clone(&file.state.descriptor),
        offset: 0,
        len: size,
    });
    Ok(StartedBody {
        producer: Box::new(Compressed::new(content, encoder)),
        opening: Chunk::new(),
        fields,
        what: format!("{:?} as {}", file.path, coding.name()),
        reserved: None,
    })
}

fn listing_fields(view: &ListingView, rules: &SiteRules) -> Vec<u8> {
    let own = ProducedFields {
        varies_by: Some("Accept"),
        ..ProducedFields::default()
    };
    let (own, media) = match view.format {
        ListingFormat::Json => (own, "application/json"),
        ListingFormat::Html => {
            let page = PageFields::of(view);
            let own = ProducedFields {
                referrer_policy: Some(page.referrer_policy),
                content_security_policy: Some(page.content_security_policy),
                ..own
            };
            (own, "text/html; charset=utf-8")
        }
    };
    let mut fields = rules.made_fields(own);
    push_cache_control(&mut fields, rules);
    push_field(&mut fields, "Content-Type", media);
    fields
}

fn archive_fields(name: &[u8], format: ArchiveFormat, rules: &SiteRules) -> Vec<u8> {
    let mut fields = rules.made_fields(ProducedFields::default());
    push_cache_control(&mut fields, rules);
    push_field(&mut fields, "Content-Type", format.media_type());
    let saved = [name, format.extension().as_bytes()].concat();
    push_attachment(&mut fields, &saved);
    fields
}

fn push_cache_control(fields: &mut Vec<u8>, rules: &SiteRules) {
    if let Some(control) = rules.audience.restrict(Some("no-cache")) {
        push_field(fields, "Cache-Control", &*control);
    }
}
