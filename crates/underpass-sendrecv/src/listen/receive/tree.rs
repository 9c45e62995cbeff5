//! Receives a tree.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use underpass_http::status::Status;
use underpass_net::Connection;
use underpass_receive::{Error as ReceiveFault, PartialTree, RelativePath};

use super::stop::{ReceiveStop, tree_failure};
use super::{ReceiveRole, Running, blocking};
use crate::listen::exchange::RoleContext;
use crate::listen::request::{Request, ShortResponse};
use crate::profile::{self, TreePosition};
use crate::progress::TransferEvent;
use crate::target::{Existing, UNFINISHED_LIFETIME};
use crate::tree::{self, TreeStop};

impl ReceiveRole {
    /// Reports how much of a tree is there.
    pub(super) async fn tree_status(&self, name: &str) -> Result<ShortResponse, ReceiveStop> {
        let target = self.target(name)?;
        if let Some(position) = self.completed(&tree_key(name), &target).await {
            return Ok(ShortResponse::new(Status::Ok, "").with(profile::POSITION, position));
        }
        self.end_running(&tree_key(name)).await;
        match self.present_tree(&target).await? {
            Some((_tree, position)) => {
                let response = ShortResponse::new(Status::NoContent, "");
                Ok(response.with(profile::POSITION, position))
            }
            None => Ok(ShortResponse::new(
                Status::NotFound,
                "nothing of it was received",
            )),
        }
    }

    async fn present_tree(
        &self,
        target: &RelativePath,
    ) -> Result<Option<(PartialTree, TreePosition)>, ReceiveFault> {
        let (area, target) = (Arc::clone(&self.area), target.clone());
        let settings = tree::settings(&self.options, Some(&target));
        blocking(move || tree::present(&area, &target, settings)).await
    }

    pub(super) async fn put_tree(
        &self,
        worker: &RoleContext,
        request: &Request,
        name: Option<&String>,
        connection: &mut Connection,
    ) -> Result<ShortResponse, ReceiveStop> {
        let target = name.map(|name| self.target(name)).transpose()?;
        let key = tree_key(name.map_or("", String::as_str));
        let running = self.begin(&key).await;
        let put = self.receive_tree(worker, request, target.as_ref(), connection, &running);
        let put = put.await;
        self.end(&key, &running);
        let position = put?;
        if let Some(name) = name {
            self.complete.add(tree_key(name), position.to_string());
        }
        let files = &worker.progress.files;
        files.fetch_add(position.members, Relaxed);
        Ok(ShortResponse::new(Status::Created, "stored"))
    }

    /// Receives a tree and gives it its name. Returns its end.
    async fn receive_tree(
        &self,
        worker: &RoleContext,
        request: &Request,
        target: Option<&RelativePath>,
        connection: &mut Connection,
        running: &Running,
    ) -> Result<TreePosition, ReceiveStop> {
        if let (Some(target), Existing::Kept) = (target, self.options.existing) {
            self.check_room(target, None).await?;
        }
        let mut partial = self.partial_tree(request, target).await?;
        let (_, before) = partial.progress();
        if before > 0 {
            worker.progress.record(TransferEvent::Continued {
                name: target.map_or("", RelativePath::as_str).to_owned(),
                bytes: before,
            });
        }
        request.invite(connection).await?;
        let mut body = request.body();
        let received = tokio::select! {
            received = tree::receive(&mut body, connection, &mut partial, &worker.progress) => {
                Some(received)
            }
            () = running.replaced.notified() => None,
        };
        let stop = match received {
            Some(Ok(())) => None,
            Some(Err(stop)) => Some(tree_failure(stop)),
            None => Some(ReceiveStop::Lost),
        };
        if let Some(stop) = stop {
            let kept = blocking(move || match partial.record() {
                Some(_) => partial.keep(UNFINISHED_LIFETIME),
                None => partial.discard(),
            });
            if let Err(error) = kept.await {
                tracing::warn!("what was received cannot be kept: {error}");
            }
            return Err(stop);
        }
        let (members, bytes) = partial.progress();
        let position = TreePosition {
            members,
            chain: partial.chain(),
            cut: None,
        };
        let (named, existing) = (target.cloned(), self.options.existing);
        let committed =
            tokio::task::spawn_blocking(move || tree::commit(partial, named.as_ref(), existing));
        let committed = committed.await;
        let committed = committed.map_err(|_| ReceiveFault::of("a job on the disk", Errno::IO))?;
        committed.map_err(|error| tree_failure(TreeStop::Tree(error)))?;
        worker.progress.record(TransferEvent::Complete {
            name: target.map_or(".", RelativePath::as_str).to_owned(),
            bytes,
        });
        Ok(position)
    }

    /// Returns the tree that the body continues, or a new one.
    async fn partial_tree(
        &self,
        request: &Request,
        target: Option<&RelativePath>,
    ) -> Result<PartialTree, ReceiveStop> {
        let (area, settings) = (
            Arc::clone(&self.area),
            tree::settings(&self.options, target),
        );
        let Some(target) = target else {
            return Ok(blocking(move || area.begin_tree(settings)).await?);
        };
        let present = self.present_tree(target).await?;
        let asked = request.field(profile::POSITION).map(TreePosition::parse);
        match (present, asked) {
            (Some((tree, position)), Some(Some(asked))) if position == asked => Ok(tree),
            // The member in progress has changed: it is sent from its start.
            (Some((mut tree, position)), Some(Some(asked)))
                if asked.cut.is_none()
                    && (position.members, position.chain) == (asked.members, asked.chain) =>
            {
                tree.forget_cut();
                Ok(tree)
            }
            (Some((_, position)), Some(_)) => Err(ShortResponse::new(
                Status::Conflict,
                "the receiver has another part of the tree",
            )
            .with(profile::POSITION, position)
            .into()),
            (None, Some(_)) => {
                let text = "nothing of the tree was received: send it from its start";
                Err(ShortResponse::new(Status::Conflict, text).into())
            }
            (present, None) => {
                let target = target.clone();
                let created = blocking(move || {
                    if let Some((earlier, _)) = present {
                        earlier.discard()?;
                    }
                    tree::create(&area, &target, settings)
                });
                Ok(created.await?)
            }
        }
    }
}

/// The key of a tree among the running requests.
fn tree_key(name: &str) -> String {
    format!("{name}/")
}
