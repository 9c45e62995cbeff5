//! The role of a waiting receiver.

mod file;
mod stop;
mod tree;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::Notify;
use underpass_http::path::PathForm;
use underpass_http::status::Status;
use underpass_net::Connection;
use underpass_receive::{Area, Error as ReceiveFault, RelativePath};

use self::stop::ReceiveStop;
use crate::completed::CompletedItems;
use crate::listen::exchange::{RoleContext, Then, respond};
use crate::listen::request::{Request, ShortResponse, Verb};
use crate::profile;
use crate::progress::TransferEvent;
use crate::target::ReceiveOptions;

/// The state of the worker of a receiver.
pub(super) struct ReceiveRole {
    area: Arc<Area>,
    options: ReceiveOptions,
    /// The items that are being received.
    running: RefCell<HashMap<String, Rc<Running>>>,
    /// The items that are complete: a sender whose last response was lost asks again.
    complete: CompletedItems,
}

/// A request that receives an item. A newer one for the same item ends it.
#[derive(Debug, Default)]
struct Running {
    replaced: Notify,
    ended: Notify,
}

impl ReceiveRole {
    pub(super) fn new(area: &Arc<Area>, options: &ReceiveOptions) -> ReceiveRole {
        ReceiveRole {
            area: Arc::clone(area),
            options: options.clone(),
            running: RefCell::default(),
            complete: CompletedItems::open(&options.state),
        }
    }

    pub(super) async fn answer(
        &self,
        worker: &RoleContext,
        request: &Request,
        names: &[String],
        connection: &mut Connection,
    ) -> Then {
        // The sender knows that everything is stored.
        if request.is_completion(names) {
            let response = ShortResponse::new(Status::NoContent, "");
            let then = respond(response, request, connection, Then::Close).await;
            worker.completed();
            return then;
        }
        let answered = match (request.verb, names, request.form) {
            (Verb::Put, [name], PathForm::File) => {
                self.put_file(worker, request, name, connection).await
            }
            (Verb::Head, [name], PathForm::File) => self.file_status(name).await,
            (Verb::Put, [name], PathForm::Folder) => {
                self.put_tree(worker, request, Some(name), connection).await
            }
            (Verb::Put, [], _) => self.put_tree(worker, request, None, connection).await,
            (Verb::Head, [name], PathForm::Folder) => self.tree_status(name).await,
            (Verb::Get | Verb::Head, [], _) => Ok(ShortResponse::new(
                Status::Ok,
                "underpass recv waits here: send a file with `curl -T FILE URL`",
            )),
            (Verb::Put | Verb::Head | Verb::Get | Verb::Post, _, _) => {
                Err(ShortResponse::new(Status::NotFound, "no such item").into())
            }
            (Verb::Other, _, _) => Err(ShortResponse::new(
                Status::MethodNotAllowed,
                "only PUT and HEAD are answered",
            )
            .into()),
        };
        match answered {
            Ok(response) => {
                let remaining = request.number(profile::REMAINING).unwrap_or(0);
                let is_native = request.field(profile::VERSION).is_some();
                let is_last = request.verb == Verb::Put && remaining == 0;
                let then = match is_last {
                    true if is_native => Then::Confirm,
                    _ => Then::KeepAlive,
                };
                let then = respond(response, request, connection, then).await;
                if is_last && !is_native && then != Then::Abort {
                    worker.completed();
                }
                then
            }
            Err(ReceiveStop::Answer(response)) => {
                let name = names.first().map_or("", String::as_str);
                let text = format!("refused {name}: {}", response.text);
                worker.progress.record(TransferEvent::Warning(text));
                respond(response, request, connection, Then::Close).await
            }
            Err(ReceiveStop::Lost) => Then::Abort,
        }
    }

    /// Returns what is known of a complete item, as long as it is there.
    async fn completed(&self, key: &str, target: &RelativePath) -> Option<String> {
        let known = self.complete.get(key)?;
        let (area, target) = (Arc::clone(&self.area), target.clone());
        let there = blocking(move || area.stat(&target)).await;
        there.is_ok().then_some(known)
    }

    /// Checks that an item may have its name, and has room. Returns how many bytes may be received.
    async fn check_room(
        &self,
        target: &RelativePath,
        length: Option<u64>,
    ) -> Result<u64, ReceiveFault> {
        let (area, target) = (Arc::clone(&self.area), target.clone());
        let (keep_free, overwrite) = (self.options.keep_free, self.options.overwrite());
        blocking(move || {
            match area.stat(&target) {
                Err(ReceiveFault::NotFound) => {}
                Err(error) => return Err(error),
                Ok(_) if overwrite == underpass_receive::Overwrite::Refused => {
                    return Err(ReceiveFault::Exists);
                }
                Ok(_) => {}
            }
            area.check_space(length.unwrap_or(0), keep_free)
        })
        .await
    }

    fn target(&self, name: &str) -> Result<RelativePath, ReceiveFault> {
        self.options.path_of(name)
    }

    /// Registers a request for an item, after an earlier one has ended.
    async fn begin(&self, name: &str) -> Rc<Running> {
        loop {
            self.end_running(name).await;
            let mut all = self.running.borrow_mut();
            if !all.contains_key(name) {
                let running = Rc::<Running>::default();
                all.insert(name.to_owned(), Rc::clone(&running));
                return running;
            }
        }
    }

    async fn end_running(&self, name: &str) {
        let running = self.running.borrow().get(name).cloned();
        if let Some(running) = running {
            let ended = running.ended.notified();
            running.replaced.notify_one();
            ended.await;
        }
    }

    fn end(&self, name: &str, running: &Running) {
        self.running.borrow_mut().remove(name);
        running.ended.notify_waiters();
    }
}

/// Runs a job that may wait for the disk.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, ReceiveFault> + Send + 'static,
) -> Result<T, ReceiveFault> {
    match tokio::task::spawn_blocking(job).await {
        Ok(done) => done,
        Err(_) => Err(ReceiveFault::of("a job on the disk", Errno::IO)),
    }
}
