//! Which mechanisms are worth trying for a pair of ends, in which order, and why not the others.
//!
//! Planning is pure: it looks at what is known of both ends, at [`KernelFacts`] and at what the
//! caller allows. `docs/decisions.md` is this module's answer for every pair of kinds.

pub(crate) mod reason;

use std::fmt;

use rustix::io::Errno;

use crate::vocabulary::account::{Mechanism, Scope};
use crate::vocabulary::endpoint::{Endpoint, EndpointKind, Owed, Side, Sink, Source, Writes};
use crate::vocabulary::error::Fault;
use crate::vocabulary::limits::SPLICED_BYTES_MIN;
use reason::Reason;

/// The mechanisms worth trying for a pair of ends, in order, and why the others are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order they are tried; `None` after the last.
    tiers: [Option<Mechanism>; 5],
    /// By mechanism.
    left_out: [Option<Reason>; 5],
    pub(crate) holes: Holes,
}

impl Plan {
    /// The mechanisms worth trying, in order.
    pub fn tiers(&self) -> impl Iterator<Item = Mechanism> + '_ {
        self.tiers.iter().copied().flatten()
    }

    /// Those left out, with the reason.
    pub fn left_out(&self) -> impl Iterator<Item = (Mechanism, Reason)> + '_ {
        Mechanism::ALL
            .into_iter()
            .filter_map(|m| Some((m, self.left_out[m.index()]?)))
    }

    /// The first one to try; none where the policy allows nothing that works.
    pub fn first(&self) -> Option<Mechanism> {
        self.tiers[0]
    }

    /// Why there is nothing to try: a mechanism that was refused before is named with its errno.
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

    /// The one to try after `mechanism` was refused.
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

/// What the caller allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Which mechanisms.
    pub choice: Choice,
    /// Whether files may share blocks.
    pub cloning: Cloning,
    /// What becomes of holes and zeros in a file.
    pub holes: Holes,
    /// Whether a socket or pipe may hold references to the source's pages.
    pub aliasing: Aliasing,
}

impl Policy {
    /// Only this mechanism: an error rather than a fallback.
    pub fn only(mechanism: Mechanism) -> Self {
        Self {
            choice: Choice::Only(mechanism),
            ..Self::default()
        }
    }

    /// The same with these mechanisms.
    #[must_use]
    pub fn choice(self, choice: Choice) -> Self {
        Self { choice, ..self }
    }

    /// The same with files that share blocks, or do not.
    #[must_use]
    pub fn cloning(self, cloning: Cloning) -> Self {
        Self { cloning, ..self }
    }

    /// The same with holes that are kept, filled or found.
    #[must_use]
    pub fn holes(self, holes: Holes) -> Self {
        Self { holes, ..self }
    }

    /// The same with references to pages accepted or refused.
    #[must_use]
    pub fn aliasing(self, aliasing: Aliasing) -> Self {
        Self { aliasing, ..self }
    }

    /// Whether payload may travel by it at all.
    pub fn allows(&self, mechanism: Mechanism) -> bool {
        match self.choice {
            Choice::Auto => true,
            Choice::Only(only) => only == mechanism,
        }
    }
}

/// Which mechanisms may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works, falling back visibly.
    #[default]
    Auto,
    /// This one or an error.
    Only(Mechanism),
}

/// Whether a copy may share blocks with its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cloning {
    /// Where the file system can.
    #[default]
    Auto,
    /// It must, or it is an error.
    Always,
    /// It must not: `copy_file_range` is left out too, for it clones where it can.
    Never,
}

/// What becomes of a source's holes, and of zeros, where the sink is a regular file.
///
/// A sink can have holes only where it has nothing yet, and where its writes land at offsets. In
/// any other one nothing is skipped, since old bytes would remain, and `Find` means `Keep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Holes of the source stay holes, zeros in its data stay data.
    #[default]
    Keep,
    /// Every byte is written, holes as zeros, and has room on the disk: `Clone` and `CopyRange`
    /// are left out, since they may keep holes, or share them.
    Fill,
    /// Holes stay holes, and runs of zeros in data become holes too. Only `ReadWrite` sees them,
    /// so that the others are left out.
    ///
    /// A run is one or more blocks at multiples of the sink's block size ([`Endpoint::block_bytes`]
    /// of the sink, at least 512 and at most [`BUFFER_BYTES`](crate::limits::BUFFER_BYTES)), of
    /// which the last may be shorter where the transfer ends, if it is known beforehand where that
    /// is ([`Owed::Exactly`](crate::Owed::Exactly)). Shorter runs are written, and so are runs that
    /// a short read splits.
    ///
    /// [`Endpoint::block_bytes`]: crate::Endpoint::block_bytes
    Find,
}

/// Whether bytes may leave as references to pages of the page cache.
///
/// Such bytes stay references until the peer has acknowledged them: a file that is overwritten *in
/// place* meanwhile changes what the peer receives. Replacing files by `rename` is always safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aliasing {
    /// Accepted: the source's range is not overwritten in place while it is under way.
    #[default]
    Accepted,
    /// Refused: towards sockets and pipes only copying mechanisms are used.
    Refused,
}

/// What a kernel is known to refuse between two ends, and whether it has a pipe to lend, at one
/// moment: [`Kernel::facts`](crate::Kernel::facts). The default has refused nothing and has pipes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelFacts {
    /// What was refused before, by mechanism in the order of
    /// [`Mechanism::ALL`](crate::Mechanism::ALL), and how far that holds.
    pub refused: [Option<(Scope, Errno)>; 5],
    /// Whether there is a pipe for splice.
    pub pipes: Pipes,
}

/// Whether a pipe of full size is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipes {
    /// One is idle, or may be opened.
    #[default]
    Available,
    /// As many as there should be are in use, or the kernel grants smaller ones only.
    Exhausted,
}

/// Plans a move. No system calls, no locks: the answer depends on the arguments alone.
/// [`Kernel::plan`](crate::Kernel::plan) reads the kernel's facts and plans by them.
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

/// Into a pipe splice is the native call, and sendfile the same thing with a detour; into a TCP
/// socket or a file it moves more at once, which pays for ranges that are large enough. So it does
/// compared with `copy_file_range`, whose only other way on a block device is to clone: where a
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

/// Whether what is written lands where the same file is read. The calls that move inside the kernel
/// refuse that, or pass on pages that are overwritten on the way.
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

/// A whole file into an empty one, or whole blocks of it (the last one may end with the file).
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

/// Whether the kernel can do this between such endpoints at all, and whether it is wise.
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

/// A regular file of size 0 may have content (procfs, sysfs), of which the in-kernel copies move 0
/// bytes. Only reading shows it.
fn size_known(source: &Endpoint) -> Result<(), Reason> {
    match (source.kind, source.size) {
        (EndpointKind::File, 0) => Err(Reason::SizeUnknown),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
