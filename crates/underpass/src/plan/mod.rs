//! The mechanisms worth trying for a pair of ends, their order, and the reasons against the others.
//!
//! Planning is pure: it depends on the facts about both ends, [`KernelFacts`] and the caller's
//! [`Policy`]. `docs/decisions.md` is the output of this module for every pair of kinds.

pub(crate) mod reason;

use std::fmt;

use rustix::io::Errno;

use crate::vocabulary::account::{Mechanism, Scope};
use crate::vocabulary::endpoint::{Endpoint, EndpointKind, Owed, Side, Sink, Source, Writes};
use crate::vocabulary::error::Fault;
use crate::vocabulary::limits::SPLICED_BYTES_MIN;
use reason::Reason;

/// The mechanisms worth trying for a pair of ends, in order, and the reasons against the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order they are tried; `None` after the last.
    tiers: [Option<Mechanism>; 5],
    /// By mechanism.
    left_out: [Option<Reason>; 5],
    pub(crate) holes: Holes,
}

impl Plan {
    /// Returns the mechanisms worth trying, in order.
    pub fn tiers(&self) -> impl Iterator<Item = Mechanism> + '_ {
        self.tiers.iter().copied().flatten()
    }

    /// Returns the mechanisms left out, with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (Mechanism, Reason)> + '_ {
        Mechanism::ALL
            .into_iter()
            .filter_map(|m| Some((m, self.left_out[m.index()]?)))
    }

    /// Returns the first mechanism to try; `None` if no mechanism that the policy allows works.
    pub fn first(&self) -> Option<Mechanism> {
        self.tiers[0]
    }

    /// Returns why the plan is empty: an earlier refusal is reported with its errno.
    pub(crate) fn fault(&self) -> (Option<Mechanism>, Fault, Option<Errno>) {
        let fault = self
            .left_out()
            .find_map(|(mechanism, reason)| match reason {
                Reason::Overlaps => Some((None, Fault::Overlap, None)),
                Reason::Refused(_, errno) => Some((Some(mechanism), Fault::Refused, Some(errno))),
                _ => None,
            });
        fault.unwrap_or((None, Fault::Refused, None))
    }

    /// Returns the mechanism to try after `mechanism` was refused.
    pub(crate) fn after(&self, mechanism: Mechanism) -> Option<Mechanism> {
        let place = self
            .tiers
            .iter()
            .position(|tier| *tier == Some(mechanism))?;
        self.tiers.get(place + 1).copied().flatten()
    }

    pub(crate) fn includes(&self, mechanism: Mechanism) -> bool {
        self.tiers.contains(&Some(mechanism))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers: Vec<_> = self.tiers().map(Mechanism::name).collect();
        f.write_str(&if tiers.is_empty() {
            "nothing".to_owned()
        } else {
            tiers.join(", then ")
        })?;
        for (mechanism, reason) in self.left_out() {
            write!(f, "; not {mechanism}: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Plan {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("Plan", 2)?;
        object.serialize_field("tiers", &self.tiers().collect::<Vec<_>>())?;
        let left_out: std::collections::BTreeMap<_, _> = self
            .left_out()
            .map(|(mechanism, reason)| (mechanism.name(), reason))
            .collect();
        object.serialize_field("left_out", &left_out)?;
        object.end()
    }
}

/// The mechanisms, sharing and holes that the caller allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The allowed mechanisms.
    pub choice: Choice,
    /// Whether files may share blocks.
    pub cloning: Cloning,
    /// The treatment of holes and zeros in a file.
    pub holes: Holes,
    /// Whether a socket or pipe may hold references to the source's pages.
    pub aliasing: Aliasing,
}

impl Policy {
    /// Returns a policy that allows only this mechanism: an error rather than a fallback.
    pub fn only(mechanism: Mechanism) -> Self {
        Self {
            choice: Choice::Only(mechanism),
            ..Self::default()
        }
    }

    /// Returns the policy with these mechanisms.
    #[must_use]
    pub fn choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// Returns the policy with files that share blocks, or do not.
    #[must_use]
    pub fn cloning(self, cloning: Cloning) -> Self {
        Self { cloning, ..self }
    }

    /// Returns the policy with holes that are kept, filled or found.
    #[must_use]
    pub fn holes(self, holes: Holes) -> Self {
        Self { holes, ..self }
    }

    /// Returns the policy with references to pages accepted or refused.
    #[must_use]
    pub fn aliasing(self, aliasing: Aliasing) -> Self {
        Self { aliasing, ..self }
    }

    /// Returns whether payload may travel by this mechanism at all.
    pub fn allows(&self, mechanism: Mechanism) -> bool {
        match self.choice {
            Choice::Auto => true,
            Choice::Only(only) => only == mechanism,
        }
    }
}

/// The mechanisms that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best one that works, with visible fallbacks.
    #[default]
    Auto,
    /// Only this one, or an error.
    Only(Mechanism),
}

/// Whether a copy may share blocks with its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cloning {
    /// If the file system can.
    #[default]
    Auto,
    /// It must share blocks, or it is an error.
    Always,
    /// It must not share blocks: `copy_file_range` is left out too, since it clones if it can.
    Never,
}

/// The treatment of a source's holes, and of zeros, if the sink is a regular file.
///
/// A sink can have holes only where it has no bytes yet, and if it is written at offsets. In any
/// other sink nothing is skipped, since old bytes would remain, and `Find` means `Keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Holes of the source stay holes, zeros in its data stay data.
    #[default]
    Keep,
    /// Every byte is written, holes as zeros, and allocated on disk: `Clone` and `CopyRange` are
    /// left out, since they may keep holes, or share them.
    Fill,
    /// Holes stay holes, and runs of zeros in data become holes too. Only `ReadWrite` sees them, so
    /// that the others are left out.
    ///
    /// A run is one or more blocks at multiples of the sink's block size ([`Endpoint::block_bytes`]
    /// of the sink, at least 512 and at most [`BUFFER_BYTES`](crate::limits::BUFFER_BYTES)); the
    /// last one may be shorter at the end of the transfer, if that is known beforehand
    /// ([`Owed::Exactly`](crate::Owed::Exactly)). Shorter runs are written, and so are runs that a
    /// short read splits.
    ///
    /// [`Endpoint::block_bytes`]: crate::Endpoint::block_bytes
    Find,
}

/// Whether bytes may leave as references to pages of the page cache.
///
/// Such bytes stay references until the peer has acknowledged them: overwriting a file *in place*
/// meanwhile changes what the peer receives. Replacing files by `rename` is always safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aliasing {
    /// Accepted: the source's range must not be overwritten in place while it is in transit.
    #[default]
    Accepted,
    /// Refused: only copying mechanisms are used for sockets and pipes.
    Refused,
}

/// The known refusals of a kernel between two ends, and whether it has a free pipe, at one moment:
/// [`Kernel::facts`](crate::Kernel::facts). The default has no refusals and has pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFacts {
    /// The earlier refusals, by mechanism in the order of
    /// [`Mechanism::ALL`](crate::Mechanism::ALL), and their scope.
    pub refused: [Option<(Scope, Errno)>; 5],
    /// Whether a pipe is available for splice.
    pub pipes: Pipes,
}

/// Whether a pipe of full size is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipes {
    /// One is idle, or can be opened.
    #[default]
    Available,
    /// The maximum number is in use, or the kernel grants smaller pipes only.
    Exhausted,
}

/// Plans a move. No system calls, no locks: the result depends on the arguments alone.
/// [`Kernel::plan`](crate::Kernel::plan) reads the kernel's facts and plans with them.
///
/// ```
/// use underpass::{EndpointKind, KernelFacts, Mechanism, Policy, Sink, Source, plan};
///
/// let (source, sink) = (Source::sample(EndpointKind::File), Sink::sample(EndpointKind::Tcp));
/// let plan = plan(&source, &sink, &KernelFacts::default(), &Policy::default());
/// assert_eq!(plan.first(), Some(Mechanism::Splice));
/// for (mechanism, reason) in plan.left_out() {
///     println!("not {mechanism}: {reason}"); // not clone: the sink is not a regular file
/// }
/// ```
pub fn plan<F, G>(
    source: &Source<F>,
    sink: &Sink<G>,
    kernel: &KernelFacts,
    policy: &Policy,
) -> Plan {
    let mut plan = Plan {
        tiers: [None; 5],
        left_out: [None; 5],
        holes: policy.holes,
    };
    let mut places = plan.tiers.iter_mut();
    for mechanism in order(source, sink, kernel) {
        match admit(mechanism, source, sink, kernel, policy) {
            Ok(()) => *places.next().expect("as many places as mechanisms") = Some(mechanism),
            Err(reason) => plan.left_out[mechanism.index()] = Some(reason),
        }
    }
    plan
}

/// The major number in `st_dev`: 0 for network, stacked, FUSE and memory file systems, and Btrfs.
const MAJOR_BITS: u64 = 0xffff_f000_000f_ff00;

/// Orders the mechanisms. Into a pipe splice is the native call, and sendfile an indirect one; into
/// a TCP socket or a file it moves more per call than sendfile, which pays for large ranges. So it
/// does compared with `copy_file_range`, which on a block device can otherwise only clone: if a
/// clone is tried first, nothing is lost.
fn order<F, G>(source: &Source<F>, sink: &Sink<G>, kernel: &KernelFacts) -> [Mechanism; 5] {
    use Mechanism::{Clone, CopyRange, ReadWrite, Sendfile, Splice};
    let is_large = matches!(source.owed, Owed::Exactly(len) if len >= SPLICED_BYTES_MIN);
    let on_disks = source.end.device & MAJOR_BITS != 0 && sink.end.device & MAJOR_BITS != 0;
    match sink.end.kind {
        EndpointKind::Pipe => [Clone, CopyRange, Splice, Sendfile, ReadWrite],
        _ if !is_large || kernel.pipes == Pipes::Exhausted => Mechanism::ALL,
        EndpointKind::File if on_disks && clonable(source, sink).is_ok() => {
            [Clone, Splice, CopyRange, Sendfile, ReadWrite]
        }
        EndpointKind::Tcp | EndpointKind::File => [Clone, CopyRange, Splice, Sendfile, ReadWrite],
        _ => Mechanism::ALL,
    }
}

fn admit<F, G>(
    mechanism: Mechanism,
    source: &Source<F>,
    sink: &Sink<G>,
    kernel: &KernelFacts,
    policy: &Policy,
) -> Result<(), Reason> {
    if overlaps(source, sink) {
        return Err(Reason::Overlaps);
    }
    let asked = policy.choice == Choice::Only(mechanism)
        || (mechanism == Mechanism::Clone && policy.cloning == Cloning::Always);
    match accepts(mechanism, &source.end, &sink.end) {
        Err(reason) if reason.is_advice() && asked => (),
        otherwise => otherwise?,
    }
    if mechanism == Mechanism::Clone {
        clonable(source, sink)?;
    }
    allowed(mechanism, source, sink, policy)?;
    match kernel.refused[mechanism.index()] {
        Some((scope, errno)) => Err(Reason::Refused(scope, errno)),
        None => Ok(()),
    }
}

fn allowed<F, G>(
    mechanism: Mechanism,
    source: &Source<F>,
    sink: &Sink<G>,
    policy: &Policy,
) -> Result<(), Reason> {
    if !policy.allows(mechanism) {
        return Err(Reason::NotAsked);
    }
    match (policy.cloning, mechanism) {
        (Cloning::Never, Mechanism::Clone | Mechanism::CopyRange) => {
            return Err(Reason::MayShareBlocks);
        }
        (Cloning::Always, Mechanism::Clone) | (Cloning::Auto | Cloning::Never, _) => (),
        (Cloning::Always, _) => return Err(Reason::CopiesBytes),
    }
    match (policy.holes, mechanism) {
        (Holes::Fill, Mechanism::Clone | Mechanism::CopyRange) => {
            return Err(Reason::MayKeepHoles);
        }
        (Holes::Keep | Holes::Fill, _) | (Holes::Find, Mechanism::ReadWrite) => (),
        (Holes::Find, _) if sink.takes_holes() => return Err(Reason::SeesNoZeros),
        (Holes::Find, _) => (),
    }
    let aliases = mechanism != Mechanism::ReadWrite
        && matches!(source.end.kind, EndpointKind::File | EndpointKind::Block)
        && (sink.end.kind.is_socket() || sink.end.kind == EndpointKind::Pipe);
    if aliases && policy.aliasing == Aliasing::Refused {
        Err(Reason::Aliases)
    } else {
        Ok(())
    }
}

/// Returns whether a file would be written where it is read. The calls that move inside the kernel
/// refuse that, or pass on pages that are overwritten in transit.
fn overlaps<F, G>(source: &Source<F>, sink: &Sink<G>) -> bool {
    let (from, to) = (&source.end, &sink.end);
    let same = from.kind.has_offsets() && from.kind == to.kind && from.inode > 0;
    if !same || (from.device, from.inode) != (to.device, to.inode) {
        return false;
    }
    let start = match to.writes {
        Writes::AtOffset => sink.to,
        Writes::Appends => to.size,
    };
    match source.owed {
        Owed::Exactly(len) => start.abs_diff(source.from) < len,
        Owed::ToEnd => true,
    }
}

/// Accepts a whole file into an empty one, or whole blocks (the last one may end with the file).
fn clonable<F, G>(source: &Source<F>, sink: &Sink<G>) -> Result<(), Reason> {
    if is_whole(source, sink) {
        return Ok(());
    }
    let block = source.end.block_bytes.max(sink.end.block_bytes).max(1);
    let Owed::Exactly(len) = source.owed else {
        return Err(Reason::Unaligned);
    };
    let to_end = source.from.checked_add(len) == Some(source.end.size);
    let aligned = [source.from, sink.to]
        .iter()
        .all(|offset| offset.is_multiple_of(block))
        && (len.is_multiple_of(block) || to_end);
    if aligned && len > 0 {
        Ok(())
    } else {
        Err(Reason::Unaligned)
    }
}

pub(crate) fn is_whole<F, G>(source: &Source<F>, sink: &Sink<G>) -> bool {
    let whole = match source.owed {
        Owed::Exactly(len) => len == source.end.size,
        Owed::ToEnd => true,
    };
    // QUIRK(clone-keeps-tail): FICLONE does not truncate: a longer sink would keep its tail.
    whole && source.from == 0 && sink.to == 0 && sink.end.size == 0
}

/// Returns whether the kernel can do this between such endpoints at all, and whether it is wise.
fn accepts(mechanism: Mechanism, source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
    let is_sealed = |end: &Endpoint| end.kind == EndpointKind::TcpSealed;
    match mechanism {
        Mechanism::ReadWrite => Ok(()),
        _ if is_sealed(source) || is_sealed(sink) => Err(Reason::Sealed),
        Mechanism::Clone | Mechanism::CopyRange => between_files(source, sink),
        Mechanism::Sendfile => from_pages(source, sink),
        Mechanism::Splice => through_pipe(source, sink),
    }
}

fn between_files(source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
    if source.kind != EndpointKind::File {
        return Err(Reason::NotRegular(Side::Source));
    }
    if sink.kind != EndpointKind::File {
        return Err(Reason::NotRegular(Side::Sink));
    }
    appends(sink)?;
    size_known(source)
}

fn from_pages(source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
    if !source.kind.has_offsets() && source.kind != EndpointKind::Char {
        return Err(Reason::NotSeekable);
    }
    through_pipe(source, sink)
}

fn through_pipe(source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
    appends(sink)?;
    for (side, end) in [(Side::Source, source), (Side::Sink, sink)] {
        if matches!(end.kind, EndpointKind::Char | EndpointKind::Other) {
            return Err(Reason::DriverDecides(side));
        }
    }
    size_known(source)
}

fn appends(sink: &Endpoint) -> Result<(), Reason> {
    match sink.writes {
        Writes::Appends => Err(Reason::SinkAppends),
        Writes::AtOffset => Ok(()),
    }
}

/// Rejects a regular file of size 0, which may have content (procfs, sysfs), of which the in-kernel
/// copies move 0 bytes. Only reading shows it.
fn size_known(source: &Endpoint) -> Result<(), Reason> {
    match (source.kind, source.size) {
        (EndpointKind::File, 0) => Err(Reason::SizeUnknown),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
