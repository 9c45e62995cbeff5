//! The state that a worker shares among its connections, and how it responds to a request.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;
use underpass::Outbox;
use underpass_http::fields::coding::Coding;
use underpass_http::fields::digest::FileDigest;
use underpass_http::fields::writer::Clock;
use underpass_http::path::SitePath;
use underpass_http::persistence::Persistence;
use underpass_http::request::head::RequestHead;
use underpass_http::request::request_line::Method;
use underpass_http::status::{HttpError, Status};
use underpass_http::version::HttpVersion;
use underpass_net::{Connection, DescriptorRoom, LogThrottle, Proxies};

use crate::access::permits::Permits;
use crate::access::random::fill;
use crate::access::rules::AccessRefusal;
use crate::access::store::SiteLogins;
use crate::access::verifier::PasswordVerifier;
use crate::answer::decide::{HashPurpose, Lookup, ReadyResponse, Response, decide, to_https};
use crate::answer::multipart::Boundary;
use crate::answer::text::TextResponse;
use crate::answer::writer::{BodyJoining, ResponseContext, WrittenResponse, write, write_produced};
use crate::body::compressed::CompressionPermit;
use crate::body::listing::view::FolderChanges;
use crate::connection::changes::changes;
use crate::connection::producers::{BodyProducers, UNREADABLE};
use crate::connection::upload_protocols::running::RunningUploads;
use crate::limits::BUSY;
use crate::limits::{OPEN_ATTEMPTS_MAX, RequestLimits};
use crate::log::{AccessLog, LogWriter};
use crate::metrics::registry::MetricsRegistry;
use crate::metrics::worker_metrics::{ServeSummary, WorkerMetrics};
use crate::record::end::ExchangeEnd;
use crate::record::exchange::{EndedExchange, Exchange, ExchangeInProgress, ObservationLevel};
use crate::record::explain::{Explain, PreviousResponse};
use crate::site::digest_cache::{DigestCache, DigestError};
use crate::site::file::{OpenFileCache, Resolved, SiteFile};
use crate::site::resolve::{SiteView, find, folder, precompressed};
use crate::site::sites::{ServedSite, ServedSites};
use crate::site::watcher::WorkerWatcher;

/// The state that the workers of a generation share.
#[derive(Clone, Debug)]
pub(crate) struct HttpShared {
    pub(crate) sites: Arc<ServedSites>,
    pub(crate) limits: RequestLimits,
    pub(crate) joining: BodyJoining,
    pub(crate) digests: Arc<DigestCache>,
    pub(crate) running: Arc<RunningUploads>,
    pub(crate) registry: Arc<MetricsRegistry>,
    /// The level of detail recorded about exchanges.
    pub(crate) observation: ObservationLevel,
    pub(crate) proxies: Proxies,
    /// A field for all responses on encrypted connections, preceded by a line break.
    pub(crate) hsts: Option<Arc<str>>,
    pub(crate) verifier: Arc<PasswordVerifier>,
}

/// The state of a worker.
#[derive(Debug)]
pub struct Worker {
    pub(crate) shared: HttpShared,
    /// The open files of each site, by its index.
    files: Vec<Rc<OpenFileCache>>,
    /// The logins of each site, by its index.
    pub(crate) logins: Vec<RefCell<SiteLogins>>,
    watcher: Rc<WorkerWatcher>,
    clock: Clock,
    throttle: LogThrottle,
    /// The buffer for the next head. One per worker, so that idle connections have none.
    head_buffer: RefCell<Vec<u8>>,
    pub(crate) producers: BodyProducers,
    pub(crate) metrics: Arc<WorkerMetrics>,
    log: Option<LogWriter>,
    /// A record for the next exchange.
    pub(crate) spare_exchange: RefCell<Option<Box<ExchangeInProgress>>>,
}

/// The response to a request, or the work it still needs.
#[derive(Debug)]
pub(crate) enum Answer<'w> {
    /// The head is in the outbox.
    Written(WrittenResponse),
    /// Boxed: it is rare, and every connection in use reserves space for an answer.
    AwaitsHash(Box<HashJob<'w>>),
}

/// A response that needs the hash of a file first.
#[derive(Debug)]
pub(crate) struct HashJob<'w> {
    purpose: HashPurpose,
    permits: Option<Permits>,
    context: ResponseContext<'w>,
}

/// The terms of a response, in addition to the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTerms<'p> {
    /// The index of the site that the request is for.
    pub(crate) site: usize,
    /// The permits of the requester; `None` if everyone may read everything.
    pub(crate) permits: Option<&'p Permits>,
    pub(crate) persistence: Persistence,
    /// The port that requests are redirected to.
    pub(crate) https: Option<u16>,
    /// The number of the attempt to respond, from 1.
    pub(crate) attempt: u32,
}

/// The readable files of a site at one moment.
struct SiteLookup<'w, 'p> {
    site: &'w ServedSite,
    permits: Option<&'p Permits>,
    files: &'w Rc<OpenFileCache>,
    producers: &'w BodyProducers,
    now: SystemTime,
    /// Whether a file or folder could not be opened because descriptors ran out.
    ran_out: Cell<bool>,
}

impl SiteLookup<'_, '_> {
    fn view(&self) -> SiteView<'_> {
        SiteView {
            site: self.site,
            permits: self.permits,
            now: self.now,
        }
    }

    fn noting_shortage(&self, found: Resolved) -> Resolved {
        if let Resolved::Busy(Errno::MFILE | Errno::NFILE) = found {
            self.ran_out.set(true);
        }
        found
    }
}

impl Lookup for SiteLookup<'_, '_> {
    fn permit(&self, path: &SitePath) -> Result<(), AccessRefusal> {
        self.permits
            .map_or(Ok(()), |permits| permits.check(path.bytes()))
    }

    fn link_depth(&self) -> usize {
        self.permits.map_or(0, |permits| permits.asker.link.depth())
    }

    fn find(&self, path: SitePath) -> Resolved {
        // Checked first, so that the response does not depend on the cache.
        if let Err(refusal) = self.permit(&path) {
            return Resolved::Refused(refusal);
        }
        let open = |path| find(self.view(), path);
        let found = self.noting_shortage(self.files.find(path, self.now, open));
        match (&found, self.permits) {
            // The cached file may have been opened for another requester.
            (Resolved::File(file), Some(permits)) => match permits.check(file.settled()) {
                Ok(()) => found,
                Err(refusal) => Resolved::Refused(refusal),
            },
            _ => found,
        }
    }

    fn folder(&self, path: SitePath) -> Resolved {
        self.noting_shortage(folder(self.view(), path))
    }

    fn changes(&self, folder: &SitePath) -> Option<FolderChanges> {
        changes(self.site, self.permits, folder)
    }

    fn precompressed(&self, file: &SiteFile, coding: Coding) -> Option<SiteFile> {
        precompressed(self.view(), file, coding)
    }

    fn compression_permit(&self) -> Option<CompressionPermit> {
        self.producers.compression_permit()
    }
}

const CHANGED: HttpError = HttpError::new(
    Status::ServiceUnavailable,
    "the file changed while it was read; try again",
);

impl Worker {
    pub(crate) fn new(shared: &HttpShared) -> Worker {
        let sites = shared.sites.all.iter();
        let metrics = shared
            .registry
            .register(sites.map(|site| Arc::clone(&site.label)));
        let watcher = Rc::new(WorkerWatcher::default());
        let files = || OpenFileCache::new(Arc::clone(&metrics), Rc::clone(&watcher));
        Worker {
            files: shared.sites.all.iter().map(|_| files()).collect(),
            logins: shared
                .sites
                .all
                .iter()
                .map(|_| RefCell::default())
                .collect(),
            watcher: Rc::clone(&watcher),
            clock: Clock::default(),
            throttle: LogThrottle::default(),
            head_buffer: RefCell::default(),
            producers: BodyProducers::default(),
            log: shared.registry.log.as_ref().map(AccessLog::writer),
            metrics,
            spare_exchange: RefCell::default(),
            shared: shared.clone(),
        }
    }

    /// Handles all file changes up to now, for a request that the event loop did not report.
    pub(crate) fn read_file_events(&self) {
        self.watcher.read_events();
    }

    /// Counts a connection.
    pub(crate) fn connected(&self, connection: &Connection) -> Exchange {
        self.metrics.connections_accepted.add(1);
        let number = self.shared.registry.next_connection();
        Exchange::new(number, connection, self.shared.observation)
    }

    /// Closes the files that are kept open for later requests.
    pub(crate) fn close_kept_files(&self) {
        self.files.iter().for_each(|files| files.give_up());
    }

    /// Returns the index of the site that a request is for.
    pub(crate) fn site_of(&self, authority: Option<&[u8]>) -> usize {
        let sites = &self.shared.sites;
        match sites.all.len() {
            1 => 0,
            _ => sites.names.number_of(authority),
        }
    }

    /// Responds to a request; `None` if no descriptor was free to open a file, and the request may
    /// be retried.
    pub(crate) fn answer(
        &self,
        request: RequestHead<'_>,
        terms: AnswerTerms<'_>,
        outbox: &mut Outbox,
        room: DescriptorRoom<'_>,
    ) -> Option<Answer<'_>> {
        let AnswerTerms {
            site,
            permits,
            persistence,
            https,
            attempt,
        } = terms;
        let now = SystemTime::now();
        let lookup = self.lookup(site, permits, now);
        let rules = &lookup.site.rules;
        let cors = rules.cors.as_ref();
        let context = ResponseContext {
            allowed_origin: cors.and_then(|cors| cors.admit(request.fields.origin)),
            ..self.context(site, request.method, request.version, persistence, now)
        };
        if let Some(redirect) = https.and_then(|port| to_https(&request, port)) {
            let redirect = ReadyResponse::Text(redirect);
            let written = self.write(redirect, &context, &lookup, outbox);
            return Some(Answer::Written(written));
        }
        let response = decide(request, rules, &self.shared.limits, &lookup);
        if lookup.ran_out.get() && attempt < OPEN_ATTEMPTS_MAX {
            return None;
        }
        Some(match response {
            Response::Ready(ready) => Answer::Written(self.write(ready, &context, &lookup, outbox)),
            Response::Produced(production) => {
                Answer::Written(match self.producers.start(production, lookup.site, room) {
                    Ok(started) => {
                        write_produced(started, &context, self.head_buffer.take(), outbox)
                    }
                    Err(text) => self.write(ReadyResponse::Text(text), &context, &lookup, outbox),
                })
            }
            Response::AwaitsHash(purpose) => Answer::AwaitsHash(Box::new(HashJob {
                purpose,
                permits: permits.cloned(),
                context,
            })),
        })
    }

    fn context(
        &self,
        site: usize,
        method: Method,
        version: HttpVersion,
        persistence: Persistence,
        now: SystemTime,
    ) -> ResponseContext<'_> {
        ResponseContext {
            method,
            version,
            persistence,
            date: self.clock.date(now),
            joining: self.shared.joining,
            site,
            rules: &self.shared.sites.all[site].rules,
            allowed_origin: None,
            boundary: random_boundary,
        }
    }

    fn lookup<'w, 'p>(
        &'w self,
        site: usize,
        permits: Option<&'p Permits>,
        now: SystemTime,
    ) -> SiteLookup<'w, 'p> {
        SiteLookup {
            permits,
            site: &self.shared.sites.all[site],
            files: &self.files[site],
            producers: &self.producers,
            now,
            ran_out: Cell::new(false),
        }
    }

    fn write(
        &self,
        response: ReadyResponse,
        context: &ResponseContext<'_>,
        lookup: &SiteLookup<'_, '_>,
        outbox: &mut Outbox,
    ) -> WrittenResponse {
        let page = match &response {
            ReadyResponse::Text(text) => {
                self.warn(text);
                let page = context.rules.page(text.error.status);
                page.map(|page| lookup.find(page.clone()))
            }
            _ => None,
        };
        let page = match page {
            Some(Resolved::File(page)) => Some(page),
            _ => None,
        };
        write(response, page, context, self.head_buffer.take(), outbox)
    }

    fn warn(&self, text: &TextResponse) {
        let (status, Some(errno)) = (text.error.status, text.cause) else {
            return;
        };
        let line = status.line();
        self.throttle
            .warn(format_args!("requests answered with {line}: {errno}"));
    }

    /// Hashes a file for a response. Dropping the future stops it.
    pub(crate) async fn hash(&self, job: &HashJob<'_>) -> Result<FileDigest, DigestError> {
        let (file, algorithm) = job.purpose.subject();
        if let (Method::Head, HashPurpose::Line(..)) = (job.context.method, &job.purpose) {
            // All hashes have the same length.
            return Ok(FileDigest::UNKNOWN);
        }
        let descriptor = Arc::clone(&file.state.descriptor);
        self.shared.digests.find(descriptor, algorithm).await
    }

    /// Responds with a hash, or reports why it failed; a file is then sent without it.
    pub(crate) fn answer_hash(
        &self,
        job: HashJob<'_>,
        digest: Result<FileDigest, DigestError>,
        outbox: &mut Outbox,
    ) -> WrittenResponse {
        let HashJob {
            purpose,
            permits,
            context,
        } = job;
        let now = SystemTime::now();
        let context = ResponseContext {
            date: self.clock.date(now),
            ..context
        };
        let response = match (purpose, digest) {
            (HashPurpose::Line(file, _), Ok(digest)) => ReadyResponse::HashLine(file, digest),
            (HashPurpose::Line(..), Err(error)) => ReadyResponse::Text(match error {
                DigestError::Busy => TextResponse::new(BUSY),
                DigestError::Changed => TextResponse::new(CHANGED),
                DigestError::Failed(errno) => TextResponse::caused(UNREADABLE, errno),
            }),
            (HashPurpose::Field(body), digest) => {
                // The file may have changed since the response was decided.
                let digest = digest.ok().filter(|_| body.file.state.is_still_so());
                ReadyResponse::Content(body, digest)
            }
        };
        let lookup = self.lookup(context.site, permits.as_ref(), now);
        self.write(response, &context, &lookup, outbox)
    }

    /// Answers a request with a status and a line of text.
    pub(crate) fn answer_text(
        &self,
        text: TextResponse,
        (site, request, persistence): (usize, &RequestHead<'_>, Persistence),
        outbox: &mut Outbox,
    ) -> WrittenResponse {
        let now = SystemTime::now();
        let lookup = self.lookup(site, None, now);
        let cors = lookup.site.rules.cors.as_ref();
        let context = ResponseContext {
            allowed_origin: cors.and_then(|cors| cors.admit(request.fields.origin)),
            ..self.context(site, request.method, request.version, persistence, now)
        };
        self.warn(&text);
        write(
            ReadyResponse::Text(text),
            None,
            &context,
            self.head_buffer.take(),
            outbox,
        )
    }

    /// Responds to an invalid request; the connection is closed afterwards.
    pub(crate) fn refuse(
        &self,
        method: Method,
        error: HttpError,
        outbox: &mut Outbox,
    ) -> WrittenResponse {
        let (version, now) = (HttpVersion::Http11, SystemTime::now());
        let context = self.context(0, method, version, Persistence::Close, now);
        let response = ReadyResponse::Text(TextResponse::new(error));
        write(response, None, &context, Vec::new(), outbox)
    }

    /// Counts and logs a completed exchange, and takes its buffers back.
    pub(crate) fn record(&self, outbox: &mut Outbox, exchange: &mut Exchange, end: ExchangeEnd) {
        let (sent, beside) = (outbox.take_account(), outbox.take_send_stats());
        let duration = exchange.duration();
        let metrics = &self.metrics;
        metrics.exchange(exchange.method(), exchange.status(), end, duration);
        let received = exchange.received_account();
        let mut refusals = metrics.sent(&sent, &beside);
        if received.bytes() > 0 {
            refusals.extend(metrics.received(received));
        }
        for refusal in refusals {
            tracing::warn!("fell back: {refusal}");
        }
        metrics.other_bytes.add(exchange.bytes_before());
        let bytes = exchange.bytes_before() + beside.bytes + sent.bytes();
        if let Some(site) = exchange.site() {
            metrics.sites[site].exchange(exchange.status(), bytes);
        }
        if let Some(tls) = &exchange.tls {
            metrics.sealed_bytes[tls.sealed_by() as usize].add(bytes);
        }
        let ended = EndedExchange {
            exchange,
            account: &sent,
            beside,
            duration,
            end,
        };
        if let Some(log) = &self.log {
            log.write(&ended);
        }
        let memory_bytes = ended.sent().saturating_sub(sent.bytes());
        exchange.end(&self.spare_exchange);
        if self.shared.registry.explain == Explain::On {
            exchange.previous = Some(Box::new(PreviousResponse {
                account: sent,
                memory_bytes,
            }));
        }
        self.head_buffer.replace(outbox.spare());
    }

    /// Waits until the log is written, and returns a summary.
    pub(crate) fn finish(&self) -> ServeSummary {
        if let Some(log) = &self.log {
            log.finish();
        }
        self.metrics.summary()
    }
}

fn random_boundary() -> Boundary {
    let mut random = [0; 16];
    fill(&mut random);
    Boundary::new(u128::from_ne_bytes(random))
}
