//! What one worker keeps for all its connections, and how a request becomes an answer there.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rustix::io::Errno;
use underpass::{Account, Outbox};
use underpass_net::{Burst, Trouble};

use crate::answer::{Answer, Sought, answer};
use crate::clock::Clock;
use crate::digest::{Digest, Digests, NoDigest};
use crate::feed::Feeding;
use crate::head::{Persistence, Request};
use crate::limits::Limits;
use crate::open_files::OpenFiles;
use crate::reply::{Circumstances, Sending, push_refusal, reply};
use crate::request_line::{Method, Version};
use crate::resolve::folder;
use crate::site::Sites;
use crate::status::{Refusal, Status};
use crate::workshop::{Hashing, Workshop, reply_hash};

/// A worker's state. Nothing in it is shared with another worker but the open roots.
#[derive(Debug)]
pub struct Worker {
    pub(crate) limits: Limits,
    sites: Arc<Sites>,
    /// Of each site, in their order.
    files: Vec<Rc<OpenFiles>>,
    clock: Clock,
    trouble: Trouble,
    /// Where the next head is written. One for the worker, so that waiting connections have none.
    spare: RefCell<Vec<u8>>,
    requests: Cell<u64>,
    account: RefCell<Account>,
    workshop: Workshop,
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

impl Worker {
    pub(crate) fn new(sites: Arc<Sites>, limits: Limits, digests: Arc<Digests>) -> Worker {
        Worker {
            limits,
            files: sites.all().iter().map(|_| Rc::default()).collect(),
            sites,
            clock: Clock::default(),
            trouble: Trouble::default(),
            spare: RefCell::default(),
            requests: Cell::new(0),
            account: RefCell::default(),
            workshop: Workshop::new(digests),
        }
    }

    /// Answers a request into `outbox`.
    pub(crate) fn answer(
        &self,
        request: Request<'_>,
        persistence: Persistence,
        outbox: &mut Outbox,
    ) -> Owed {
        self.requests.set(self.requests.get() + 1);
        let now = SystemTime::now();
        let circumstances = Circumstances {
            method: request.method,
            version: request.version,
            persistence,
            date: self.clock.date(now),
        };
        let number = self.sites.number_of(request.authority);
        let (site, files) = (&self.sites.all()[number], &self.files[number]);
        let answer = answer(request, site.extras, |path, sought| match sought {
            Sought::Index => files.find(site.root(), path, now),
            Sought::Itself => folder(site.root(), path),
        });
        match answer {
            Answer::Listing(folder, view) => {
                let made = self.workshop.list(folder, view, circumstances, outbox);
                self.made(made, &circumstances, outbox)
            }
            Answer::Archive(folder, compression) => {
                let shop = &self.workshop;
                let made = shop.pack(folder, &site.called, compression, circumstances, outbox);
                self.made(made, &circumstances, outbox)
            }
            Answer::Hash(file, algorithm) => Owed::Hash(Hashing {
                file,
                algorithm,
                circumstances,
            }),
            answer => {
                if let Answer::Trouble(refusal, errno) = &answer {
                    self.tell(*refusal, *errno);
                }
                let sending = reply(answer, &circumstances, self.spare.take(), outbox);
                sending.map_or(Owed::Nothing, Owed::File)
            }
        }
    }

    fn made(
        &self,
        made: io::Result<Option<Feeding>>,
        circumstances: &Circumstances,
        outbox: &mut Outbox,
    ) -> Owed {
        match made {
            Ok(feeding) => feeding.map_or(Owed::Nothing, Owed::Feed),
            Err(error) => {
                let why = "the folder cannot be read";
                let refusal = Refusal::new(Status::InternalServerError, why);
                self.tell(refusal, Errno::from_io_error(&error).unwrap_or(Errno::IO));
                push_refusal(refusal, circumstances, outbox);
                Owed::Nothing
            }
        }
    }

    /// Hashes a file. Dropping the future stops it.
    pub(crate) async fn hash(&self, hashing: &Hashing) -> Result<Digest, NoDigest> {
        self.workshop.hash(hashing).await
    }

    /// Answers with a hash, or says why there is none.
    pub(crate) fn answer_hash(
        &self,
        hashing: &Hashing,
        digest: Result<Digest, NoDigest>,
        outbox: &mut Outbox,
    ) {
        if let Some(errno) = reply_hash(hashing, digest, outbox) {
            self.tell(Refusal::new(Status::InternalServerError, "hash"), errno);
        }
    }

    /// Answers what could not be read as a request; the connection ends with it.
    pub(crate) fn refuse(&self, refusal: Refusal, outbox: &mut Outbox) {
        self.requests.set(self.requests.get() + 1);
        let circumstances = Circumstances {
            method: Method::Unknown,
            version: Version::Http11,
            persistence: Persistence::Close,
            date: self.clock.date(SystemTime::now()),
        };
        push_refusal(refusal, &circumstances, outbox);
    }

    /// Keeps account of what was sent of an answer, and the memory its head had.
    pub(crate) fn record(&self, outbox: &mut Outbox) {
        let mut account = self.account.borrow_mut();
        let known = account.refusals.len();
        account.add(&outbox.take_account());
        for refusal in &account.refusals[known..] {
            tracing::warn!("bodies leave in another way: {refusal}");
        }
        self.spare.replace(outbox.spare());
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            requests: self.requests.get(),
            account: self.account.borrow().clone(),
        }
    }

    fn tell(&self, refusal: Refusal, errno: Errno) {
        if self.trouble.meet(Instant::now()) == Burst::New {
            tracing::warn!(
                "requests answered with {}: open: {errno}",
                refusal.status.line()
            );
        }
    }
}
