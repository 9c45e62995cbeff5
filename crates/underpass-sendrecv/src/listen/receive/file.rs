//! Receives a file.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::io::Errno;
use underpass::Account;
use underpass_http::fields::content_range::ContentRange;
use underpass_http::status::Status;
use underpass_net::Connection;
use underpass_receive::{Error as ReceiveFault, PartialFile, RelativePath, SyncPolicy};

use super::stop::{ReceiveStop, failure};
use super::{ReceiveRole, Running, blocking};
use crate::body::Body;
use crate::listen::exchange::RoleContext;
use crate::listen::request::{Request, ShortResponse};
use crate::offer::window;
use crate::profile::{self, SourceStamp, WindowHash};
use crate::progress::{TransferEvent, TransferProgress};
use crate::target::{self, UNFINISHED_LIFETIME};

/// The interval at which the size of a file is shown as the progress.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

impl ReceiveRole {
    /// Reports how much of a file is there.
    pub(super) async fn file_status(&self, name: &str) -> Result<ShortResponse, ReceiveStop> {
        let target = self.target(name)?;
        if let Some(stamp) = self.completed(name, &target).await {
            return Ok(ShortResponse::new(Status::Ok, "").with(profile::SOURCE, stamp));
        }
        // What a connection that was lost has brought counts, once it is in the file.
        self.end_running(name).await;
        match self.unfinished(&target).await? {
            Some((partial, source)) => {
                let response = ShortResponse::new(Status::NoContent, "");
                let response = response.with(profile::OFFSET, partial.size()?);
                Ok(match source {
                    Some(source) => response.with(profile::SOURCE, source),
                    None => response,
                })
            }
            None => Ok(ShortResponse::new(
                Status::NotFound,
                "nothing of it was received",
            )),
        }
    }

    pub(super) async fn put_file(
        &self,
        worker: &RoleContext,
        request: &Request,
        name: &str,
        connection: &mut Connection,
    ) -> Result<ShortResponse, ReceiveStop> {
        let target = self.target(name)?;
        let running = self.begin(name).await;
        let mut body = request.body();
        let put = self.receive(worker, request, &target, connection, (&mut body, &running));
        let put = put.await;
        self.end(name, &running);
        let source = put?;
        if let Some(source) = source {
            self.complete.add(name.to_owned(), source.to_string());
        }
        worker.progress.files.fetch_add(1, Relaxed);
        Ok(ShortResponse::new(Status::Created, "stored"))
    }

    /// Receives a file and gives it its name.
    async fn receive(
        &self,
        worker: &RoleContext,
        request: &Request,
        target: &RelativePath,
        connection: &mut Connection,
        (body, running): (&mut Body, &Running),
    ) -> Result<Option<SourceStamp>, ReceiveStop> {
        let (start, total) = extent(request, body)?;
        let source = request.field(profile::SOURCE).and_then(SourceStamp::parse);
        let owed = total.map(|total| total - start);
        let room = self.check_room(target, owed).await?;
        let mut partial = self
            .partial(request, target, (start, total), source)
            .await?;
        if start > 0 {
            worker.progress.record(TransferEvent::Continued {
                name: target.as_str().to_owned(),
                bytes: start,
            });
        }
        request.invite(connection).await?;
        let mut account = Account::default();
        let len = owed.unwrap_or(room);
        let file = Arc::clone(partial.file());
        let received = {
            let moving = body.move_to_file(connection, &*file, (start, len), &mut account);
            let moving = watched(moving, &file, start, &worker.progress);
            tokio::select! {
                received = moving => Some(received),
                () = running.replaced.notified() => None,
            }
        };
        worker.progress.moved(&account);
        let stop = match received {
            Some(Ok(_)) if owed.is_none() => self.surplus(target, connection, (body, room)).await,
            Some(Ok(_)) => None,
            Some(Err(error)) => Some(failure(error)),
            None => Some(ReceiveStop::Lost),
        };
        if let Some(stop) = stop {
            self.keep(partial).await;
            return Err(stop);
        }
        let size = partial.size()?;
        if total.is_some_and(|total| total != size) {
            self.keep(partial).await;
            return Err(ReceiveStop::Lost);
        }
        if partial.record().is_some() {
            let _ = partial.set_length(size);
        }
        let overwrite = self.options.overwrite();
        let named = target.clone();
        let committed = blocking(move || partial.commit(&named, overwrite, SyncPolicy::End, None));
        committed.await?;
        worker.progress.record(TransferEvent::Complete {
            name: target.as_str().to_owned(),
            bytes: size,
        });
        Ok(source)
    }

    /// Returns the refusal of a body of unknown length that is longer than the room for it.
    async fn surplus(
        &self,
        target: &RelativePath,
        connection: &mut Connection,
        (body, room): (&mut Body, u64),
    ) -> Option<ReceiveStop> {
        match body.next(connection).await {
            Ok(0) => None,
            Ok(_) => {
                let full = self.check_room(target, Some(room.saturating_add(1))).await;
                Some(full.err().unwrap_or(ReceiveFault::NoSpace).into())
            }
            Err(error) => Some(failure(error)),
        }
    }

    /// Returns the partial file that the body continues, or a new one.
    async fn partial(
        &self,
        request: &Request,
        target: &RelativePath,
        (start, total): (u64, Option<u64>),
        source: Option<SourceStamp>,
    ) -> Result<PartialFile, ReceiveStop> {
        let is_fresh = request.field(profile::FRESH).is_some();
        if let Some((partial, known)) = self.unfinished(target).await? {
            let size = partial.size()?;
            if start == size && start > 0 {
                let is_same = known == source || source.is_none();
                let window = request.field(profile::WINDOW).and_then(WindowHash::parse);
                if !is_same || !self.is_continued(&partial, start, window).await? {
                    return Err(other_source(target, start).into());
                }
                return Ok(partial);
            }
            if start > 0 || size > 0 && !is_fresh {
                return Err(elsewhere(target, size).into());
            }
            blocking(move || partial.discard()).await?;
        } else if start > 0 {
            return Err(elsewhere(target, 0).into());
        }
        let (area, target) = (Arc::clone(&self.area), target.clone());
        let created = blocking(move || match total {
            Some(total) => target::create(&area, &target, (total, source)),
            None => area.begin(),
        });
        Ok(created.await?)
    }

    /// Compares the end of what was received with the hash of the sender's bytes before its start.
    async fn is_continued(
        &self,
        partial: &PartialFile,
        start: u64,
        expected: Option<WindowHash>,
    ) -> Result<bool, ReceiveFault> {
        let Some(expected) = expected else {
            return Ok(true);
        };
        let file = Arc::clone(partial.file());
        blocking(move || {
            let failed = |errno| ReceiveFault::of("reading what was received", errno);
            let file = file.try_clone();
            let found = file.and_then(|file| window(&File::from(file), start));
            let found =
                found.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            Ok(found == expected)
        })
        .await
    }

    async fn unfinished(
        &self,
        target: &RelativePath,
    ) -> Result<Option<(PartialFile, Option<SourceStamp>)>, ReceiveFault> {
        let (area, target) = (Arc::clone(&self.area), target.clone());
        blocking(move || target::unfinished(&area, &target)).await
    }

    /// Keeps a partial file for another request, if it has a record.
    async fn keep(&self, mut partial: PartialFile) {
        let kept = blocking(move || match partial.record() {
            Some(_) => partial.keep(UNFINISHED_LIFETIME, SyncPolicy::End),
            None => partial.discard(),
        });
        if let Err(error) = kept.await {
            tracing::warn!("what was received cannot be kept: {error}");
        }
    }
}

/// Returns the first byte that a body brings, and the length of the whole file if it is known.
fn extent(request: &Request, body: &Body) -> Result<(u64, Option<u64>), ShortResponse> {
    let length = match body {
        Body::Length(length) => Some(*length),
        Body::Chunked(_) => None,
    };
    let Some(range) = request.field("Content-Range") else {
        return Ok((0, length));
    };
    let wrong = || {
        ShortResponse::new(
            Status::BadRequest,
            "Content-Range is not `bytes FIRST-LAST/TOTAL` with the length of the body, to its end",
        )
    };
    match (ContentRange::parse(range), length) {
        (
            Some(ContentRange::Part {
                range,
                size: Some(size),
            }),
            Some(length),
        ) if range.length == length && range.first + length == size => {
            Ok((range.first, Some(size)))
        }
        _ => Err(wrong()),
    }
}

/// Moves while another branch shows the size of the file as the progress.
async fn watched<T>(
    moving: impl Future<Output = T>,
    file: &OwnedFd,
    start: u64,
    progress: &TransferProgress,
) -> T {
    let before = progress.bytes.load(Relaxed);
    let size = || {
        let stat = rustix::fs::fstat(file);
        let size = stat.map_or(start, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        progress
            .bytes
            .store(before + size.saturating_sub(start), Relaxed);
    };
    let watch = async {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            size();
        }
    };
    let moved = tokio::select! {
        moved = moving => moved,
        () = watch => unreachable!("the watch has no end"),
    };
    size();
    moved
}

fn elsewhere(target: &RelativePath, size: u64) -> ShortResponse {
    let name = target.as_str();
    let text = match size {
        0 => format!("nothing of {name} was received: send it from its start"),
        size => format!(
            "{size} bytes of {name} were received earlier; continue with \
             `curl -C {size} -T {name} URL`"
        ),
    };
    ShortResponse::new(Status::Conflict, text).with(profile::OFFSET, size)
}

fn other_source(target: &RelativePath, size: u64) -> ShortResponse {
    let name = target.as_str();
    let text = format!("{size} bytes of another {name} were received earlier");
    ShortResponse::new(Status::Conflict, text).with(profile::OFFSET, size)
}
