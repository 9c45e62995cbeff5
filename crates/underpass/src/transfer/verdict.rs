//! Interprets every result of a system call, in one table.
//!
//! Sources: the manual pages of the calls, and the reports listed in `docs/kernel-notes.md`. A row
//! records an observed result, not only a documented one.
//!
//! Two principles decide results without a row. A direct mechanism that was refused has moved
//! nothing in that call and the cursor is explicit, so the next mechanism may continue from there
//! and will meet any real fault again. The last mechanism, and a relay that holds bytes, have no
//! fallback: there an unknown error ends the transfer.

use rustix::io::Errno;

use crate::transfer::op::{Op, RelayBuffer};
use crate::vocabulary::account::Scope;
use crate::vocabulary::endpoint::{EndpointKind, Waits};
use crate::vocabulary::error::Fault;

/// The state in which a call is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub(crate) source: EndpointKind,
    pub(crate) sink: EndpointKind,
    pub(crate) source_waits: Waits,
    pub(crate) sink_waits: Waits,
    /// Bytes done so far.
    pub(crate) done: u64,
}

/// The side that must become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The source must become readable.
    Source,
    /// The sink must become writable.
    Sink,
    /// Either, and the call does not report which: both must be ready.
    Both,
}

/// The meaning of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This many bytes moved.
    Moved(u64),
    /// The source has no more, or the call falsely reports so.
    Ended,
    /// Repeat the same call immediately.
    Again,
    /// Repeat the same call when the side is ready.
    Wait(Wait),
    /// The call is missing or forbidden: a probe shows the scope.
    Suspect,
    /// Try the next mechanism.
    Refused(Scope),
    /// Use the last mechanism: the others of its kind would fail in the same way.
    RefusedToReading,
    /// Stop: nothing more is tried.
    Fatal(Fault),
}

const ONCE: Verdict = Verdict::Refused(Scope::Once);

/// Interprets the result of `op`, which moves payload.
pub(crate) fn verdict(op: Op, result: Result<u64, Errno>, at: &Situation) -> Verdict {
    let errno = match result {
        Ok(0) => return zero(op),
        Ok(bytes) => return Verdict::Moved(bytes),
        Err(Errno::INTR) => return Verdict::Again,
        Err(errno) => errno,
    };
    match op {
        Op::Clone | Op::CloneRange { .. } => clone(errno),
        Op::CopyRange { .. } => copy_range(errno, at),
        Op::Sendfile { .. } => sendfile(errno, at),
        Op::Splice { .. } => splice(errno, at),
        Op::Fill { through, .. } => match through {
            RelayBuffer::Pipe => fill_pipe(errno, at),
            RelayBuffer::Buffer => fill_buffer(errno, at),
        },
        Op::Drain { through, .. } => match through {
            RelayBuffer::Pipe => drain_pipe(errno, at),
            RelayBuffer::Buffer => drain_buffer(errno, at),
        },
        _ => Verdict::Fatal(Fault::Kernel),
    }
}

const fn zero(op: Op) -> Verdict {
    match op {
        // The ioctl has no count: 0 is success.
        Op::Clone | Op::CloneRange { .. } => Verdict::Moved(0),
        Op::CopyRange { .. } | Op::Sendfile { .. } | Op::Splice { .. } | Op::Fill { .. } => {
            Verdict::Ended
        }
        Op::Drain { through, .. } => match through {
            RelayBuffer::Pipe => ONCE,
            RelayBuffer::Buffer => Verdict::Fatal(Fault::Sink),
        },
        _ => Verdict::Fatal(Fault::Kernel),
    }
}

fn clone(errno: Errno) -> Verdict {
    match errno {
        Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::XDEV => {
            Verdict::Refused(Scope::Devices)
        }
        // Final: continuing after these errors has corrupted copies (coreutils 9.2).
        Errno::NOSPC | Errno::DQUOT => Verdict::Fatal(Fault::Full),
        Errno::IO => Verdict::Fatal(Fault::Disk),
        Errno::NOMEM => Verdict::Fatal(Fault::Kernel),
        Errno::ROFS => Verdict::Fatal(Fault::Sink),
        _ => Verdict::Refused(Scope::Once),
    }
}

fn copy_range(errno: Errno, at: &Situation) -> Verdict {
    match errno {
        Errno::NOSYS | Errno::PERM => Verdict::Suspect,
        Errno::XDEV | Errno::OPNOTSUPP => Verdict::Refused(Scope::Devices),
        // QUIRK(cifs-eio): CIFS returns EIO for "not supported here"; a bad block fails again on
        // read.
        Errno::IO if at.done == 0 => Verdict::RefusedToReading,
        Errno::IO => Verdict::Fatal(Fault::Disk),
        Errno::NOSPC | Errno::DQUOT => Verdict::Fatal(Fault::Full),
        Errno::NOMEM => Verdict::Fatal(Fault::Kernel),
        Errno::ROFS | Errno::ISDIR => Verdict::Fatal(Fault::Sink),
        // EINVAL EACCES EBADF ETXTBSY EOVERFLOW EAGAIN; ENOENT from CIFS; EFBIG, which Linux 6.17
        // wrongly returns at the end of a file: the next mechanism meets a true limit again.
        _ => Verdict::Refused(Scope::Once),
    }
}

fn sendfile(errno: Errno, at: &Situation) -> Verdict {
    // Files are always ready; a terminal is not.
    let wait = match at.source {
        EndpointKind::Char => Wait::Both,
        _ => Wait::Sink,
    };
    // If the sink is a socket, only the source has a disk.
    let disk = match at.sink.is_socket() {
        true => Fault::Source,
        false => Fault::Disk,
    };
    pages(errno, at, wait, disk, Fault::Sink)
}

fn splice(errno: Errno, at: &Situation) -> Verdict {
    let disk = match at.source {
        EndpointKind::Pipe => Fault::Sink,
        _ => Fault::Source,
    };
    pages(errno, at, Wait::Both, disk, Fault::Sink)
}

/// The pipe is empty, so EAGAIN can only mean the source.
fn fill_pipe(errno: Errno, at: &Situation) -> Verdict {
    if errno == Errno::INVAL && at.source == EndpointKind::TcpKernelTls {
        return Verdict::Fatal(Fault::ControlRecord);
    }
    pages(errno, at, Wait::Source, Fault::Source, Fault::Source)
}

/// The pipe holds bytes, so EAGAIN can only mean the sink.
fn drain_pipe(errno: Errno, at: &Situation) -> Verdict {
    pages(errno, at, Wait::Sink, Fault::Sink, Fault::Sink)
}

/// Interprets an error of a call that passes pages on. `disk` is at fault for disk errors, `folder`
/// for a side that is a folder.
fn pages(errno: Errno, at: &Situation, wait: Wait, disk: Fault, folder: Fault) -> Verdict {
    match errno {
        Errno::AGAIN => wait_or_timeout(wait, at, ONCE),
        Errno::NOSYS | Errno::PERM => Verdict::Suspect,
        Errno::IO => Verdict::Fatal(disk),
        _ => terminal(errno, folder).unwrap_or(ONCE),
    }
}

fn fill_buffer(errno: Errno, at: &Situation) -> Verdict {
    match errno {
        Errno::AGAIN => wait_or_timeout(Wait::Source, at, Verdict::Fatal(Fault::Source)),
        Errno::IO if at.source == EndpointKind::TcpKernelTls => {
            Verdict::Fatal(Fault::ControlRecord)
        }
        _ => terminal(errno, Fault::Source).unwrap_or(Verdict::Fatal(Fault::Source)),
    }
}

fn drain_buffer(errno: Errno, at: &Situation) -> Verdict {
    match errno {
        Errno::AGAIN => wait_or_timeout(Wait::Sink, at, Verdict::Fatal(Fault::Sink)),
        _ => terminal(errno, Fault::Sink).unwrap_or(Verdict::Fatal(Fault::Sink)),
    }
}

/// Returns the verdict for errors that no mechanism avoids.
fn terminal(errno: Errno, folder: Fault) -> Option<Verdict> {
    let fault = match errno {
        Errno::PIPE
        | Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::NOTCONN
        | Errno::TIMEDOUT
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::NETDOWN
        | Errno::NETRESET => Fault::PeerGone,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Fault::Full,
        Errno::NOMEM | Errno::NOBUFS => Fault::Kernel,
        Errno::ROFS => Fault::Sink,
        Errno::ISDIR => folder,
        _ => return None,
    };
    Some(Verdict::Fatal(fault))
}

/// Waits only for descriptors that can become ready. On a blocking socket, EAGAIN is an expired
/// timeout; from a file it is an ordinary refusal, with the verdict `otherwise`.
fn wait_or_timeout(wait: Wait, at: &Situation, otherwise: Verdict) -> Verdict {
    let (source, sink) = ((at.source, at.source_waits), (at.sink, at.sink_waits));
    let asked: &[_] = match wait {
        Wait::Source => &[source],
        Wait::Sink => &[sink],
        Wait::Both => &[source, sink],
    };
    let polls = |&(kind, waits): &(EndpointKind, Waits)| {
        waits == Waits::Polls && !matches!(kind, EndpointKind::File | EndpointKind::Block)
    };
    if asked.iter().any(polls) {
        Verdict::Wait(wait)
    } else if asked.iter().any(|(kind, _)| kind.is_socket()) {
        Verdict::Fatal(Fault::TimedOut)
    } else {
        otherwise
    }
}

/// Interprets a probe, a call without descriptors: "bad descriptor" (or a signal that interrupted
/// it) means that the call exists and is permitted, any other error that it never works.
pub(crate) fn call_missing(probed: Errno) -> Option<Errno> {
    (![Errno::BADF, Errno::INTR].contains(&probed)).then_some(probed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(done: u64) -> Situation {
        Situation {
            source: EndpointKind::File,
            sink: EndpointKind::Tcp,
            source_waits: Waits::Blocks,
            sink_waits: Waits::Polls,
            done,
        }
    }

    const CLONE: Op = Op::Clone;
    const COPY_RANGE: Op = Op::CopyRange {
        from: 0,
        to: 0,
        len: 1,
    };
    const SENDFILE: Op = Op::Sendfile { from: None, len: 1 };
    const SPLICE: Op = Op::Splice {
        from: None,
        to: None,
        len: 1,
    };
    const FILL_PIPE: Op = Op::Fill {
        through: RelayBuffer::Pipe,
        from: None,
        len: 1,
    };
    const DRAIN_PIPE: Op = Op::Drain {
        through: RelayBuffer::Pipe,
        to: None,
        len: 1,
    };
    const READ_OUT: Op = Op::ReadOut { len: 1 };

    const CALLS: [Op; 9] = [
        CLONE,
        COPY_RANGE,
        SENDFILE,
        SPLICE,
        FILL_PIPE,
        DRAIN_PIPE,
        Op::READ,
        Op::WRITE,
        READ_OUT,
    ];

    #[test]
    fn an_interrupted_call_is_made_again() {
        for call in CALLS {
            assert_eq!(
                verdict(call, Err(Errno::INTR), &situation(0)),
                Verdict::Again,
                "{call:?}"
            );
        }
    }

    #[test]
    fn a_full_or_broken_disk_ends_everything() {
        for call in CALLS {
            for errno in [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM] {
                let reported = verdict(call, Err(errno), &situation(1));
                assert!(
                    matches!(reported, Verdict::Fatal(_)),
                    "{call:?} {errno:?} {reported:?}"
                );
            }
            let reported = verdict(call, Err(Errno::IO), &situation(1));
            assert!(
                matches!(reported, Verdict::Fatal(_)),
                "{call:?} EIO {reported:?}"
            );
        }
    }

    #[test]
    fn an_error_is_the_fault_of_the_side_that_it_can_mean() {
        use EndpointKind::{File, Pipe, Tcp, TcpKernelTls};
        for (call, source, sink, errno, fault) in [
            (CLONE, File, File, Errno::IO, Fault::Disk),
            (CLONE, File, File, Errno::ROFS, Fault::Sink),
            (COPY_RANGE, File, File, Errno::ROFS, Fault::Sink),
            (COPY_RANGE, File, File, Errno::ISDIR, Fault::Sink),
            (SENDFILE, File, Tcp, Errno::IO, Fault::Source),
            (SENDFILE, File, File, Errno::IO, Fault::Disk),
            (SENDFILE, File, File, Errno::ISDIR, Fault::Sink),
            (SPLICE, Pipe, File, Errno::IO, Fault::Sink),
            (SPLICE, File, Pipe, Errno::IO, Fault::Source),
            (SPLICE, File, Pipe, Errno::ROFS, Fault::Sink),
            (FILL_PIPE, File, Tcp, Errno::IO, Fault::Source),
            (FILL_PIPE, File, Tcp, Errno::ISDIR, Fault::Source),
            (
                FILL_PIPE,
                TcpKernelTls,
                File,
                Errno::INVAL,
                Fault::ControlRecord,
            ),
            (FILL_PIPE, TcpKernelTls, File, Errno::IO, Fault::Source),
            (DRAIN_PIPE, Tcp, File, Errno::IO, Fault::Sink),
            (DRAIN_PIPE, Tcp, File, Errno::ISDIR, Fault::Sink),
            (Op::READ, File, Tcp, Errno::IO, Fault::Source),
            (Op::READ, File, Tcp, Errno::ISDIR, Fault::Source),
            (
                Op::READ,
                TcpKernelTls,
                File,
                Errno::IO,
                Fault::ControlRecord,
            ),
            (Op::READ, TcpKernelTls, File, Errno::INVAL, Fault::Source),
            (Op::WRITE, Tcp, File, Errno::IO, Fault::Sink),
            (Op::WRITE, Tcp, File, Errno::INVAL, Fault::Sink),
            (READ_OUT, Tcp, File, Errno::IO, Fault::Kernel),
        ] {
            let at = Situation {
                source,
                sink,
                ..situation(1)
            };
            let judged = verdict(call, Err(errno), &at);
            assert_eq!(judged, Verdict::Fatal(fault), "{call:?} {errno:?}");
        }
        for call in [SENDFILE, SPLICE, FILL_PIPE, DRAIN_PIPE, Op::READ, Op::WRITE] {
            for (errno, fault) in [
                (Errno::NOSPC, Fault::Full),
                (Errno::DQUOT, Fault::Full),
                (Errno::FBIG, Fault::Full),
                (Errno::NOMEM, Fault::Kernel),
                (Errno::NOBUFS, Fault::Kernel),
                (Errno::ROFS, Fault::Sink),
            ] {
                let judged = verdict(call, Err(errno), &situation(1));
                assert_eq!(judged, Verdict::Fatal(fault), "{call:?} {errno:?}");
            }
        }
        for call in [CLONE, COPY_RANGE] {
            for (errno, fault) in [
                (Errno::NOSPC, Fault::Full),
                (Errno::DQUOT, Fault::Full),
                (Errno::NOMEM, Fault::Kernel),
            ] {
                let judged = verdict(call, Err(errno), &situation(1));
                assert_eq!(judged, Verdict::Fatal(fault), "{call:?} {errno:?}");
            }
        }
    }

    #[test]
    fn a_call_that_moves_nothing_has_ended_or_failed() {
        for (call, expected) in [
            (CLONE, Verdict::Moved(0)),
            (COPY_RANGE, Verdict::Ended),
            (SENDFILE, Verdict::Ended),
            (SPLICE, Verdict::Ended),
            (FILL_PIPE, Verdict::Ended),
            (Op::READ, Verdict::Ended),
            (DRAIN_PIPE, ONCE),
            (Op::WRITE, Verdict::Fatal(Fault::Sink)),
            (READ_OUT, Verdict::Fatal(Fault::Kernel)),
        ] {
            assert_eq!(verdict(call, Ok(0), &situation(1)), expected, "{call:?}");
            assert_eq!(verdict(call, Ok(1), &situation(1)), Verdict::Moved(1));
        }
    }

    #[test]
    fn what_peers_forgot_to_fall_back_from() {
        let refused = |call, errno, scope| {
            let reported = verdict(call, Err(errno), &situation(0));
            assert_eq!(reported, Verdict::Refused(scope), "{call:?} {errno:?}");
        };
        for errno in [Errno::OPNOTSUPP, Errno::NOTTY, Errno::NOSYS, Errno::XDEV] {
            refused(CLONE, errno, Scope::Devices);
        }
        for errno in [
            Errno::INVAL,
            Errno::PERM,
            Errno::ACCESS,
            Errno::BADF,
            Errno::TXTBSY,
        ] {
            refused(CLONE, errno, Scope::Once);
        }
        for errno in [Errno::XDEV, Errno::OPNOTSUPP] {
            refused(COPY_RANGE, errno, Scope::Devices);
        }
        for errno in [
            Errno::INVAL,
            Errno::ACCESS,
            Errno::BADF,
            Errno::TXTBSY,
            Errno::OVERFLOW,
            Errno::AGAIN,
            Errno::NOENT,
            Errno::FBIG,
        ] {
            refused(COPY_RANGE, errno, Scope::Once);
        }
        for errno in [
            Errno::INVAL,
            Errno::OPNOTSUPP,
            Errno::SPIPE,
            Errno::OVERFLOW,
        ] {
            refused(SENDFILE, errno, Scope::Once);
            refused(FILL_PIPE, errno, Scope::Once);
        }
    }

    #[test]
    fn missing_and_forbidden_calls_are_probed() {
        for call in [COPY_RANGE, SENDFILE, SPLICE, FILL_PIPE, DRAIN_PIPE] {
            for errno in [Errno::NOSYS, Errno::PERM] {
                assert_eq!(verdict(call, Err(errno), &situation(0)), Verdict::Suspect);
            }
        }
    }

    #[test]
    fn a_call_is_missing_unless_its_probe_complains_of_the_descriptors() {
        assert_eq!(call_missing(Errno::BADF), None);
        assert_eq!(call_missing(Errno::INTR), None);
        for errno in [Errno::NOSYS, Errno::PERM] {
            assert_eq!(call_missing(errno), Some(errno));
        }
    }

    /// QUIRK(cifs-eio)
    #[test]
    fn cifs_eio() {
        let first = verdict(COPY_RANGE, Err(Errno::IO), &situation(0));
        assert_eq!(first, Verdict::RefusedToReading);
        let later = verdict(COPY_RANGE, Err(Errno::IO), &situation(1));
        assert_eq!(later, Verdict::Fatal(Fault::Disk));
    }

    #[test]
    fn eagain_waits_for_the_side_it_can_only_mean() {
        let polls = Situation {
            source: EndpointKind::Tcp,
            source_waits: Waits::Polls,
            ..situation(0)
        };
        let reported = |call| verdict(call, Err(Errno::AGAIN), &polls);
        assert_eq!(reported(SENDFILE), Verdict::Wait(Wait::Sink));
        assert_eq!(reported(SPLICE), Verdict::Wait(Wait::Both));
        assert_eq!(reported(FILL_PIPE), Verdict::Wait(Wait::Source));
        assert_eq!(reported(DRAIN_PIPE), Verdict::Wait(Wait::Sink));
        assert_eq!(reported(Op::READ), Verdict::Wait(Wait::Source));
        assert_eq!(reported(Op::WRITE), Verdict::Wait(Wait::Sink));
        let terminal = Situation {
            source: EndpointKind::Char,
            ..polls
        };
        let reported = verdict(SENDFILE, Err(Errno::AGAIN), &terminal);
        assert_eq!(reported, Verdict::Wait(Wait::Both));
        let blocks = Situation {
            sink_waits: Waits::Blocks,
            ..polls
        };
        let reported = verdict(SENDFILE, Err(Errno::AGAIN), &blocks);
        assert_eq!(reported, Verdict::Fatal(Fault::TimedOut));
    }

    #[test]
    fn nobody_waits_for_a_file() {
        let files = Situation {
            sink: EndpointKind::File,
            source_waits: Waits::Polls,
            ..situation(0)
        };
        for call in [SENDFILE, SPLICE, FILL_PIPE, DRAIN_PIPE] {
            assert_eq!(verdict(call, Err(Errno::AGAIN), &files), ONCE, "{call:?}");
        }
        for (call, fault) in [(Op::READ, Fault::Source), (Op::WRITE, Fault::Sink)] {
            let reported = verdict(call, Err(Errno::AGAIN), &files);
            assert_eq!(reported, Verdict::Fatal(fault), "{call:?}");
        }
    }

    #[test]
    fn a_gone_peer_is_the_peers_fault() {
        for call in [SENDFILE, DRAIN_PIPE, Op::WRITE, Op::READ] {
            for errno in [
                Errno::PIPE,
                Errno::CONNRESET,
                Errno::CONNABORTED,
                Errno::NOTCONN,
                Errno::TIMEDOUT,
                Errno::HOSTUNREACH,
                Errno::NETUNREACH,
                Errno::NETDOWN,
                Errno::NETRESET,
            ] {
                let reported = verdict(call, Err(errno), &situation(5));
                assert_eq!(reported, Verdict::Fatal(Fault::PeerGone), "{call:?}");
            }
        }
    }
}
