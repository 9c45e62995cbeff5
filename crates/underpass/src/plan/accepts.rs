//! What each mechanism accepts.

use super::reason::Reason;
use crate::vocabulary::endpoint::{Endpoint, EndpointKind, Offsets, Side, Writes};
use crate::vocabulary::mechanism::Mechanism;

/// Whether the kernel can do this between such endpoints at all, and whether it is wise.
pub(super) fn accepts(
    mechanism: Mechanism,
    source: &Endpoint,
    sink: &Endpoint,
) -> Result<(), Reason> {
    match mechanism {
        Mechanism::Clone | Mechanism::CopyRange => between_files(source, sink),
        Mechanism::Sendfile => from_pages(source, sink),
        Mechanism::Splice => through_pipe(source, sink),
        Mechanism::ReadWrite => Ok(()),
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
    if source.kind.offsets() == Offsets::None && source.kind != EndpointKind::Char {
        return Err(Reason::NotSeekable);
    }
    appends(sink)?;
    spliceable(source, sink)
}

fn through_pipe(source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
    appends(sink)?;
    spliceable(source, sink)
}

fn spliceable(source: &Endpoint, sink: &Endpoint) -> Result<(), Reason> {
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
