//! Fetches a tree.

use underpass_receive::{PartialTree, TreeError};

use super::{ItemFetch, get};
use crate::connect::peer::Peer;
use crate::error::Error;
use crate::profile::{self, TreePosition};
use crate::progress::TransferEvent;
use crate::target::UNFINISHED_LIFETIME;
use crate::tree::{self, TreeStop};

impl ItemFetch<'_> {
    /// Fetches a tree, from where it was left.
    pub(super) async fn pull_tree(&self, peer: &mut Peer) -> Result<(), Error> {
        let settings = tree::settings(self.options, Some(&self.path));
        let present = tree::present(self.area, &self.path, settings);
        let mut present = present.map_err(|error| self.failed(error))?;
        let mut ask = get(Some(&self.item.name), "/");
        if let Some((_, position)) = &present {
            ask.fields.push((profile::POSITION, position.to_string()));
        }
        let mut reply = peer.fetch(&ask).await?;
        let at = reply.field(profile::POSITION).and_then(TreePosition::parse);
        if reply.status == 409
            && let Some((earlier, _)) = present.take()
        {
            earlier.discard().map_err(|error| self.failed(error))?;
            return Err(self.changed());
        }
        if reply.status != 200 {
            return Err(peer.refusal(reply).await);
        }
        let mut tree = self.continued(present, at)?;
        let connection = &mut peer.connection;
        let received = tree::receive(&mut reply.body, connection, &mut tree, self.progress);
        if let Err(stop) = received.await {
            // What was received stays where it can be continued.
            let _ = tree.keep(UNFINISHED_LIFETIME);
            return Err(self.stopped(stop));
        }
        let (_, bytes) = tree.progress();
        let committed = tree::commit(tree, Some(&self.path), self.options.existing);
        committed.map_err(|error| self.refused(error))?;
        self.progress.record(TransferEvent::Complete {
            name: self.item.name.clone(),
            bytes,
        });
        Ok(())
    }

    /// Returns the tree that the stream continues at a position, or a new one.
    fn continued(
        &self,
        present: Option<(PartialTree, TreePosition)>,
        at: Option<TreePosition>,
    ) -> Result<PartialTree, Error> {
        let Some((mut tree, position)) = present else {
            let settings = tree::settings(self.options, Some(&self.path));
            let created = tree::create(self.area, &self.path, settings);
            return created.map_err(|error| self.failed(error));
        };
        if position.cut.is_some() && at.is_some_and(|at| at.cut.is_none()) {
            tree.forget_cut();
        }
        let (_, bytes) = tree.progress();
        self.progress.record(TransferEvent::Continued {
            name: self.item.name.clone(),
            bytes,
        });
        Ok(tree)
    }

    fn stopped(&self, stop: TreeStop) -> Error {
        match stop {
            TreeStop::Body(error) => error.into(),
            TreeStop::Short => Error::Lost {
                why: "the stream has ended early".to_owned(),
            },
            TreeStop::Tree(error) => self.refused(error),
        }
    }

    fn refused(&self, error: TreeError) -> Error {
        Error::Tree {
            name: self.item.name.clone(),
            error,
        }
    }
}
