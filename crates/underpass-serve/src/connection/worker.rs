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

use crate::Http;
use crate::answer::decide::{Answer, Lookup, answer};
use crate::answer::reply::{Circumstances, Joining, Sending, refuse, reply};
use crate::body::compressed::Place;
use crate::body::feed::Feeding;
use crate::body::workshop::{Declined, Hashing, Occasion, Purpose, Workshop, reply_hash};
use crate::connection::visit::{Attention, Meter, Visit};
use crate::http::clock::Clock;
use crate::http::coding::Coding;
use crate::http::status::{Refusal, Status};
use crate::limits::Limits;
use crate::log::{Log, Pen};
use crate::metrics::board::{Board, Presence};
use crate::metrics::tally::{End, Tally};
use crate::options::Explain;
use crate::request::forwarded::client;
use crate::request::head::{Persistence, Request};
use crate::request::path::SitePath;
use crate::request::request_line::{Method, Version};
use crate::site::digest::{Digest, NoDigest};
use crate::site::file::File;
use crate::site::open_files::OpenFiles;
use crate::site::precompressed::sibling;
use crate::site::resolve::{Found, folder};
use crate::site::sites::{Site, Sites};

/// A worker's state. Nothing in it is shared with another worker but the open roots.
#[derive(Debug)]
pub struct Worker {
    pub(crate) limits: Limits,
    joining: Joining,
    sites: Arc<Sites>,
    /// Of each site, in their order.
    files: Vec<Rc<OpenFiles>>,
    clock: Clock,
    throttle: LogThrottle,
    /// Where the next head is written. One for the worker, so that waiting connections have none.
    spare: RefCell<Vec<u8>>,
    requests: Cell<u64>,
    account: RefCell<Account>,
    workshop: Workshop,
    board: Arc<Board>,
    tally: Arc<Tally>,
    pen: Option<Pen>,
    /// Where the next exchange's words are written down, as `spare` for heads.
    words: RefCell<Vec<u8>>,
    _presence: Presence,
    proxies: Proxies,
}

/// What is still to be done for an answer, beside sending what is in the outbox.
#[derive(Debug)]
pub(crate) enum Owed {
    Nothing,
    /// Nothing; of a file this is on its way.
    File(Sending),
    /// The rest of a body.
    Feed(Feeding),
    /// All of it.
    Hash(Hashing),
}

/// What a server has done.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests answered, refused ones included.
    pub requests: u64,
    /// What was sent of files, and by which mechanisms.
    pub account: Account,
}

impl Summary {
    /// Adds what another worker has done.
    pub fn add(&mut self, other: &Summary) {
        self.requests += other.requests;
        self.account.add(&other.account);
    }
}

impl AddAssign<&Summary> for Summary {
    fn add_assign(&mut self, other: &Summary) {
        self.add(other);
    }
}

/// The files of a site, at one moment.
struct Open<'w> {
    site: &'w Site,
    files: &'w Rc<OpenFiles>,
    workshop: &'w Workshop,
    now: SystemTime,
}

impl Lookup for Open<'_> {
    fn find(&self, path: SitePath) -> Found {
        self.files.find(self.site, path, self.now)
    }

    fn folder(&self, path: SitePath) -> Found {
        folder(self.site, path)
    }

    fn sibling(&self, file: &File, coding: Coding) -> Option<File> {
        sibling(self.site, file, coding, self.now)
    }

    fn place(&self) -> Option<Place> {
        self.workshop.place()
    }
}

impl Open<'_> {
    /// What is shown instead of one line for this status.
    fn page(&self, status: Status) -> Option<File> {
        match self.find(self.site.rules.page(status)?.clone()) {
            Found::File(page) => Some(page),
            _ => None,
        }
    }
}

impl Worker {
    pub(crate) fn new(http: &Http) -> Worker {
        let (sites, board) = (Arc::clone(&http.sites), Arc::clone(&http.board));
        let tally = board.tally();
        let files = || OpenFiles::counted(Arc::clone(&tally));
        Worker {
            limits: http.limits.clone(),
            joining: http.joining,
            files: sites.all().iter().map(|_| files()).collect(),
            sites,
            clock: Clock::default(),
            throttle: LogThrottle::default(),
            spare: RefCell::default(),
            requests: Cell::new(0),
            account: RefCell::default(),
            workshop: Workshop::new(Arc::clone(&http.digests)),
            pen: board.log.as_ref().map(Log::pen),
            board,
            tally,
            words: RefCell::default(),
            _presence: http.presence.clone(),
            proxies: http.proxies.clone(),
        }
    }

    /// A connection is there; `meter` measures its task where that is asked for.
    pub(crate) fn visit(&self, client: Option<IpAddr>, meter: Rc<Meter>) -> Visit {
        self.tally.connections_accepted.add(1);
        let number = self.board.next_connection();
        Visit::new(number, client, self.board.attention, meter)
    }

    /// Whom a request is from, on a connection of `peer`.
    pub(crate) fn client(&self, peer: Option<IpAddr>, request: &Request<'_>) -> Option<IpAddr> {
        let field = match self.proxies.forwarded {
            Forwarded::Off => return peer,
            Forwarded::Forwarded => &request.fields.forwarded,
            Forwarded::XForwardedFor => &request.fields.x_forwarded_for,
        };
        client(peer, field.value(), &self.proxies)
    }

    /// A connection has ended, however that came.
    pub(crate) fn leave(&self) {
        self.tally.connections_ended.add(1);
    }

    /// What it counts with.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How closely connections are watched.
    pub(crate) fn attention(&self) -> Attention {
        self.board.attention
    }

    /// Whether answers explain themselves.
    pub(crate) fn explain(&self) -> Explain {
        self.board.explain
    }

    /// Room to write down what a client said.
    pub(crate) fn words(&self) -> Vec<u8> {
        self.words.take()
    }

    /// Answers a request into `outbox`.
    pub(crate) fn answer(
        &self,
        mut request: Request<'_>,
        persistence: Persistence,
        outbox: &mut Outbox,
    ) -> Owed {
        self.requests.set(self.requests.get() + 1);
        let now = SystemTime::now();
        let number = self.sites.number_of(request.authority);
        let open = self.open(number, now);
        let rules = &open.site.rules;
        let origin = request.fields.origin.take();
        let circumstances = Circumstances {
            method: request.method,
            version: request.version,
            persistence,
            date: self.clock.date(now),
            joining: self.joining,
            rules,
            admitted: rules.cors.admit(origin.as_deref()),
            digest: None,
        };
        match answer(request, rules, &self.limits, &open) {
            Answer::Listing(folder, view) => {
                let made = self.workshop.list(folder, view, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Answer::Archive(folder, compression) => {
                let (shop, called) = (&self.workshop, &open.site.called);
                let made = shop.pack(folder, called, compression, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Answer::Compressed(file, coding, place) => {
                let shop = &self.workshop;
                let made = shop.compress(file, coding, place, circumstances, outbox);
                self.made(made, &open, &circumstances, outbox)
            }
            Answer::Hash(file, algorithm) => Owed::Hash(Hashing {
                purpose: Purpose::Line(file, algorithm),
                occasion: Occasion::of(number, &circumstances),
            }),
            Answer::Vouched(content) => Owed::Hash(Hashing {
                purpose: Purpose::Field(content),
                occasion: Occasion::of(number, &circumstances),
            }),
            answer => self.reply(answer, &open, &circumstances, outbox),
        }
    }

    fn open(&self, number: usize, now: SystemTime) -> Open<'_> {
        Open {
            site: &self.sites.all()[number],
            files: &self.files[number],
            workshop: &self.workshop,
            now,
        }
    }

    fn reply(
        &self,
        answer: Answer<'_>,
        open: &Open<'_>,
        circumstances: &Circumstances<'_>,
        outbox: &mut Outbox,
    ) -> Owed {
        if let Answer::Trouble(refusal, errno) = &answer {
            self.tell(*refusal, *errno);
        }
        let page = answer.error().and_then(|status| open.page(status));
        let sending = reply(answer, page, circumstances, self.spare.take(), outbox);
        sending.map_or(Owed::Nothing, Owed::File)
    }

    fn made(
        &self,
        made: Result<Option<Feeding>, Declined>,
        open: &Open<'_>,
        circumstances: &Circumstances<'_>,
        outbox: &mut Outbox,
    ) -> Owed {
        match made {
            Ok(feeding) => feeding.map_or(Owed::Nothing, Owed::Feed),
            Err(declined) => self.reply(declined.into(), open, circumstances, outbox),
        }
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, hashing: &Hashing) -> Result<Digest, NoDigest> {
        self.workshop.hash(&hashing.purpose).await
    }

    /// Answers with a hash, or says why there is none; a file comes without it then.
    pub(crate) fn answer_hash(
        &self,
        hashing: Hashing,
        digest: Result<Digest, NoDigest>,
        outbox: &mut Outbox,
    ) -> Owed {
        let now = SystemTime::now();
        let Hashing { purpose, occasion } = hashing;
        let open = self.open(occasion.site, now);
        let circumstances = Circumstances {
            method: occasion.method,
            version: occasion.version,
            persistence: occasion.persistence,
            date: self.clock.date(now),
            joining: self.joining,
            rules: &open.site.rules,
            admitted: occasion.admitted.as_deref(),
            digest: None,
        };
        match purpose {
            Purpose::Line(file, _) => {
                let made = reply_hash(&file, digest, &circumstances, outbox);
                self.made(made.map(|()| None), &open, &circumstances, outbox)
            }
            Purpose::Field(content) => {
                // While it was read or waited for, the file may have become another one.
                let digest = digest.ok().filter(|_| content.file().state.is_still_so());
                let circumstances = Circumstances {
                    digest: digest.as_ref(),
                    ..circumstances
                };
                self.reply(Answer::Content(content), &open, &circumstances, outbox)
            }
        }
    }

    /// Answers what could not be read as a request; the connection ends with it.
    pub(crate) fn refuse(&self, method: Method, refusal: Refusal, outbox: &mut Outbox) {
        self.requests.set(self.requests.get() + 1);
        let circumstances = Circumstances {
            method,
            version: Version::Http11,
            persistence: Persistence::Close,
            date: self.clock.date(SystemTime::now()),
            joining: self.joining,
            rules: &self.sites.all()[0].rules,
            admitted: None,
            digest: None,
        };
        refuse(refusal, &circumstances, outbox);
    }

    /// Keeps account of what was sent of an answer, tells of it, and keeps the memory it had.
    pub(crate) fn record(&self, outbox: &mut Outbox, visit: &mut Visit, end: End) {
        let (sent, beside) = (outbox.take_account(), outbox.take_beside());
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
    pub(crate) fn finish(&self) -> Summary {
        if let Some(pen) = &self.pen {
            pen.finish();
        }
        Summary {
            requests: self.requests.get(),
            account: self.account.borrow().clone(),
        }
    }

    fn tell(&self, refusal: Refusal, errno: Errno) {
        if self.throttle.record(Instant::now()) == Occurrence::First {
            tracing::warn!(
                "requests answered with {}: open: {errno}",
                refusal.status.line()
            );
        }
    }
}
