//! What one worker keeps for all its connections, and how a request becomes an answer there.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::ops::AddAssign;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rustix::io::Errno;
use underpass::{Account, Outbox};
use underpass_net::{Forwarded, LogThrottle, Occurrence, Proxies};

use crate::answer::decide::{Lookup, Response, answer};
use crate::answer::explain::Explain;
use crate::answer::writer::{BodyJoining, FileTransfer, ResponseContext, refuse, reply};
use crate::body::compressed::CompressionPermit;
use crate::body::producer::ProducedBody;
use crate::body::producers::{
    BodyProducers, HashJob, HashPurpose, Occasion, ProducerError, reply_hash,
};
use crate::connection::exchange::{CpuMeter, Exchange, ObservationLevel};
use crate::http::coding::Coding;
use crate::http::date::Clock;
use crate::http::digest::FileDigest;
use crate::http::status::{HttpError, Status};
use crate::limits::RequestLimits;
use crate::log::{AccessLog, LogWriter};
use crate::metrics::registry::MetricsRegistry;
use crate::metrics::worker_metrics::{ExchangeEnd, WorkerMetrics};
use crate::request::forwarded::client;
use crate::request::head::{Persistence, RequestHead};
use crate::request::path::SitePath;
use crate::request::request_line::{HttpVersion, Method};
use crate::site::digest_cache::DigestCache;
use crate::site::digest_cache::DigestError;
use crate::site::file::SiteFile;
use crate::site::file_cache::OpenFileCache;
use crate::site::precompressed::sibling;
use crate::site::resolve::{Resolved, folder};
use crate::site::sites::{ServedSite, ServedSites};

/// What all workers of a generation have in common.
#[derive(Clone, Debug)]
pub(crate) struct HttpShared {
    pub(crate) sites: Arc<ServedSites>,
    pub(crate) limits: RequestLimits,
    pub(crate) joining: BodyJoining,
    pub(crate) digests: Arc<DigestCache>,
    pub(crate) board: Arc<MetricsRegistry>,
    pub(crate) observation: ObservationLevel,
    pub(crate) proxies: Proxies,
}

/// A worker's state. Nothing in it is shared with another worker but the open roots.
#[derive(Debug)]
pub struct Worker {
    shared: HttpShared,
    /// Of each site, in their order.
    files: Vec<Rc<OpenFileCache>>,
    clock: Clock,
    throttle: LogThrottle,
    /// Where the next head is written. One for the worker, so that waiting connections have none.
    spare: RefCell<Vec<u8>>,
    requests: Cell<u64>,
    account: RefCell<Account>,
    workshop: BodyProducers,
    tally: Arc<WorkerMetrics>,
    pen: Option<LogWriter>,
    /// Where the next exchange's words are written down, as `spare` for heads.
    words: RefCell<Vec<u8>>,
}

/// What is still to be done for an answer, beside sending what is in the outbox.
#[derive(Debug)]
pub(crate) enum PendingBody {
    Nothing,
    /// Nothing; of a file this is on its way.
    File(FileTransfer),
    /// The rest of a body.
    Feed(ProducedBody),
    /// All of it.
    Hash(HashJob),
}

/// What a server has done.
#[derive(Clone, Debug, Default)]
pub struct ServeSummary {
    /// Requests answered, refused ones included.
    pub requests: u64,
    /// What was sent of files, and by which mechanisms.
    pub account: Account,
}

impl ServeSummary {
    /// Adds what another worker has done.
    pub fn add(&mut self, other: &ServeSummary) {
        self.requests += other.requests;
        self.account.add(&other.account);
    }
}

impl AddAssign<&ServeSummary> for ServeSummary {
    fn add_assign(&mut self, other: &ServeSummary) {
        self.add(other);
    }
}

/// The files of a site, at one moment.
struct SiteLookup<'w> {
    site: &'w ServedSite,
    files: &'w Rc<OpenFileCache>,
    workshop: &'w BodyProducers,
    now: SystemTime,
}

impl Lookup for SiteLookup<'_> {
    fn find(&self, path: SitePath) -> Resolved {
        self.files.find(self.site, path, self.now)
    }

    fn folder(&self, path: SitePath) -> Resolved {
        folder(self.site, path)
    }

    fn sibling(&self, file: &SiteFile, coding: Coding) -> Option<SiteFile> {
        sibling(self.site, file, coding, self.now)
    }

    fn place(&self) -> Option<CompressionPermit> {
        self.workshop.place()
    }
}

impl SiteLookup<'_> {
    /// What is shown instead of one line for this status.
    fn page(&self, status: Status) -> Option<SiteFile> {
        match self.find(self.site.rules.page(status)?.clone()) {
            Resolved::File(page) => Some(page),
            _ => None,
        }
    }
}

impl Worker {
    pub(crate) fn new(shared: &HttpShared) -> Worker {
        let tally = shared.board.tally();
        let files = || OpenFileCache::counted(Arc::clone(&tally));
        Worker {
            files: shared.sites.all().iter().map(|_| files()).collect(),
            clock: Clock::default(),
            throttle: LogThrottle::default(),
            spare: RefCell::default(),
            requests: Cell::new(0),
            account: RefCell::default(),
            workshop: BodyProducers::new(Arc::clone(&shared.digests)),
            pen: shared.board.log.as_ref().map(AccessLog::pen),
            tally,
            words: RefCell::default(),
            shared: shared.clone(),
        }
    }

    /// The bounds of requests.
    pub(crate) fn limits(&self) -> &RequestLimits {
        &self.shared.limits
    }

    /// A connection is there; `meter` measures its task where that is asked for.
    pub(crate) fn visit(&self, client: Option<IpAddr>, meter: Rc<CpuMeter>) -> Exchange {
        self.tally.connections_accepted.add(1);
        let number = self.shared.board.next_connection();
        Exchange::new(number, client, self.shared.observation, meter)
    }

    /// Whom a request is from, on a connection of `peer`.
    pub(crate) fn client(&self, peer: Option<IpAddr>, request: &RequestHead<'_>) -> Option<IpAddr> {
        let field = match self.shared.proxies.forwarded {
            Forwarded::Off => return peer,
            Forwarded::Forwarded => &request.fields.forwarded,
            Forwarded::XForwardedFor => &request.fields.x_forwarded_for,
        };
        client(peer, field.value(), &self.shared.proxies)
    }

    /// A connection has ended, however that came.
    pub(crate) fn leave(&self) {
        self.tally.connections_ended.add(1);
    }

    /// What it counts with.
    pub(crate) fn tally(&self) -> &WorkerMetrics {
        &self.tally
    }

    /// How closely connections are watched.
    pub(crate) fn attention(&self) -> ObservationLevel {
        self.shared.observation
    }

    /// Whether answers explain themselves.
    pub(crate) fn explain(&self) -> Explain {
        self.shared.board.explain
    }

    /// Room to write down what a client said.
    pub(crate) fn words(&self) -> Vec<u8> {
        self.words.take()
    }

    /// Answers a request into `outbox`.
    pub(crate) fn answer(
        &self,
        mut request: RequestHead<'_>,
        persistence: Persistence,
        outbox: &mut Outbox,
    ) -> PendingBody {
        self.requests.set(self.requests.get() + 1);
        let now = SystemTime::now();
        let number = self.shared.sites.number_of(request.authority);
        let open = self.open(number, now);
        let rules = &open.site.rules;
        let origin = request.fields.origin.take();
        let circumstances = ResponseContext {
            method: request.method,
            version: request.version,
            persistence,
            date: self.clock.date(now),
            joining: self.shared.joining,
            rules,
            admitted: rules.cors.admit(origin.as_deref()),
            digest: None,
        };
        match answer(request, rules, &self.shared.limits, &open) {
            Response::Listing(folder, view) => {
                let made = self.workshop.list(folder, view, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Response::Archive(folder, compression) => {
                let (shop, called) = (&self.workshop, &open.site.called);
                let made = shop.pack(folder, called, compression, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Response::Compressed(file, coding, place) => {
                let shop = &self.workshop;
                let made = shop.compress(file, coding, place, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Response::Hash(file, algorithm) => PendingBody::Hash(HashJob {
                purpose: HashPurpose::Line(file, algorithm),
                occasion: Occasion::of(number, &circumstances),
            }),
            Response::Vouched(content) => PendingBody::Hash(HashJob {
                purpose: HashPurpose::Field(content),
                occasion: Occasion::of(number, &circumstances),
            }),
            answer => self.reply(answer, &open, &circumstances, outbox),
        }
    }

    fn open(&self, number: usize, now: SystemTime) -> SiteLookup<'_> {
        SiteLookup {
            site: &self.shared.sites.all()[number],
            files: &self.files[number],
            workshop: &self.workshop,
            now,
        }
    }

    fn reply(
        &self,
        answer: Response<'_>,
        open: &SiteLookup<'_>,
        circumstances: &ResponseContext<'_>,
        outbox: &mut Outbox,
    ) -> PendingBody {
        if let Response::Trouble(refusal, errno) = &answer {
            self.tell(*refusal, *errno);
        }
        let page = answer.error().and_then(|status| open.page(status));
        let sending = reply(answer, page, circumstances, self.spare.take(), outbox);
        sending.map_or(PendingBody::Nothing, PendingBody::File)
    }

    fn made(
        &self,
        made: Result<Option<ProducedBody>, ProducerError>,
        open: &SiteLookup<'_>,
        circumstances: &ResponseContext<'_>,
        outbox: &mut Outbox,
    ) -> PendingBody {
        match made {
            Ok(feeding) => feeding.map_or(PendingBody::Nothing, PendingBody::Feed),
            Err(declined) => self.reply(declined.into(), open, circumstances, outbox),
        }
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, hashing: &HashJob) -> Result<FileDigest, DigestError> {
        self.workshop.hash(&hashing.purpose).await
    }

    /// Answers with a hash, or says why there is none; a file comes without it then.
    pub(crate) fn answer_hash(
        &self,
        hashing: HashJob,
        digest: Result<FileDigest, DigestError>,
        outbox: &mut Outbox,
    ) -> PendingBody {
        let now = SystemTime::now();
        let HashJob { purpose, occasion } = hashing;
        let open = self.open(occasion.site, now);
        let circumstances = ResponseContext {
            method: occasion.method,
            version: occasion.version,
            persistence: occasion.persistence,
            date: self.clock.date(now),
            joining: self.shared.joining,
            rules: &open.site.rules,
            admitted: occasion.admitted.as_deref(),
            digest: None,
        };
        match purpose {
            HashPurpose::Line(file, _) => {
                let made = reply_hash(&file, digest, &circumstances, outbox);
                self.made(made.map(|()| None), &open, &circumstances, outbox)
            }
            HashPurpose::Field(content) => {
                // While it was read or waited for, the file may have become another one.
                let digest = digest.ok().filter(|_| content.file().state.is_still_so());
                let circumstances = ResponseContext {
                    digest: digest.as_ref(),
                    ..circumstances
                };
                self.reply(Response::Content(content), &open, &circumstances, outbox)
            }
        }
    }

    /// Answers what could not be read as a request; the connection ends with it.
    pub(crate) fn refuse(&self, method: Method, refusal: HttpError, outbox: &mut Outbox) {
        self.requests.set(self.requests.get() + 1);
        let circumstances = ResponseContext {
            method,
            version: HttpVersion::Http11,
            persistence: Persistence::Close,
            date: self.clock.date(SystemTime::now()),
            joining: self.shared.joining,
            rules: &self.shared.sites.all()[0].rules,
            admitted: None,
            digest: None,
        };
        refuse(refusal, &circumstances, outbox);
    }

    /// Keeps account of what was sent of an answer, tells of it, and keeps the memory it had.
    pub(crate) fn record(&self, outbox: &mut Outbox, visit: &mut Exchange, end: ExchangeEnd) {
        let (sent, beside) = (outbox.take_account(), outbox.take_send_stats());
        let (method, status, duration) = visit.counts();
        self.tally.exchange(method, status, end, duration);
        self.tally.sent(&sent, &beside);
        self.tally.other_bytes.add(visit.bytes_before());
        if let Some(pen) = &self.pen {
            pen.write(&visit.record(&sent, beside, duration, end));
            self.words.replace(visit.end());
        } else {
            visit.end();
        }
        if self.explain() == Explain::On {
            visit.remember(&sent);
        }
        let mut account = self.account.borrow_mut();
        let known = account.refusals.len();
        account.add(&sent);
        for refusal in &account.refusals[known..] {
            tracing::warn!("bodies leave in another way: {refusal}");
        }
        self.spare.replace(outbox.spare());
    }

    /// Sums up, when what was written about the last answers is on its way to the disk.
    pub(crate) fn finish(&self) -> ServeSummary {
        if let Some(pen) = &self.pen {
            pen.finish();
        }
        ServeSummary {
            requests: self.requests.get(),
            account: self.account.borrow().clone(),
        }
    }

    fn tell(&self, refusal: HttpError, errno: Errno) {
        if self.throttle.record(Instant::now()) == Occurrence::First {
            tracing::warn!(
                "requests answered with {}: open: {errno}",
                refusal.status.line()
            );
        }
    }
}
