//! What a dry run would meet of what it would make: a folder that is copied into itself.
//!
//! A real run meets the first folder that it has made by its identity. A dry run makes none, so it
//! is noted where that folder would stand, and found out when the walk gets there.

use rustix::fs::{AtFlags, FileType, Stat, statat};

use crate::entry::execute::Entry;
use crate::options::Effect;
use crate::report::reporter::Voice;
use crate::tree::level::{self, Surroundings, identity};
use crate::walk::tree::{FirstMade, Walk};

impl Walk<'_> {
    /// A folder is not made.
    pub(super) fn imagine(&mut self, entry: &Entry<'_>) {
        let folders = &entry.task.folders;
        if self.first_made == FirstMade::Yes || folders.surroundings == Surroundings::Imagined {
            return;
        }
        self.first_made = FirstMade::Yes;
        if let Ok(above) = statat(folders.dest.fd(), c".", AtFlags::empty()) {
            let name = level::plain(&entry.task.dest);
            self.run.seen.imagined_in(identity(&above), name);
        }
    }

    /// The folder on top of the stack has just been entered: what was imagined in it is met, unless
    /// patterns leave it out.
    pub(super) fn meet_imagined(&self, source: &Stat, voice: &mut Voice<'_>) {
        if self.run.options.effect == Effect::Real {
            return;
        }
        let Some(frame) = self.stack.last() else {
            return;
        };
        for name in self.run.seen.imagined(identity(source)) {
            if self.admits(&frame.level, &name, FileType::Directory) {
                voice.problem(self.met_itself());
            }
        }
    }
}
