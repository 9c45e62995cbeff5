//! What one worker keeps for all its connections, and how a request becomes an answer there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rustix::io::Errno;
use underpass::{Account, Outbox};
use underpass_net::{Burst, Trouble};

use crate::answer::{Answer, answer};
use crate::clock::Clock;
use crate::head::{Persistence, Request};
use crate::limits::Limits;
use crate::open_files::OpenFiles;
use crate::reply::{Circumstances, Sending, refuse, reply};
use crate::request_line::{Method, Version};
use crate::site::Sites;
use crate::status::Refusal;

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
    pub(crate) fn new(sites: Arc<Sites>, limits: Limits) -> Worker {
        Worker {
            limits,
            files: sites.all().iter().map(|_| Rc::default()).collect(),
            sites,
            clock: Clock::default(),
            trouble: Trouble::default(),
            spare: RefCell::default(),
            requests: Cell::new(0),
            account: RefCell::default(),
        }
    }

    /// Answers a request into `outbox`.
    pub(crate) fn answer(
        &self,
        request: Request<'_>,
        persistence: Persistence,
        outbox: &mut Outbox,
    ) -> Option<Sending> {
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
        let answer = answer(request, &self.limits, |path| {
            files.find(site.root(), path, now)
        });
        if let Answer::Trouble(refusal, errno) = &answer {
            self.tell(*refusal, *errno);
        }
        reply(answer, &circumstances, self.spare.take(), outbox)
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
        refuse(refusal, &circumstances, outbox);
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
