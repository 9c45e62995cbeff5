//! Confines workers with Landlock (landlock(7)) to what serving needs.
//!
//! A worker confines its own thread, and with it every thread that it makes; the main thread keeps
//! its rights, so that it can go on reading configurations and starting programs. What is given up
//! depends on the kernel: docs/serve.md, "Privileges", has the table, and a test tries each row.
//!
//! Files that are open stay open. One thing more may be opened: `/dev/null` for writing, which is
//! where cold files are read to.

use std::fmt;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::thread;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use crate::error::Error;

/// Whether workers are confined.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Confine {
    /// As far as this kernel supports it.
    #[default]
    Auto,
    /// Workers are confined, at least in all that concerns files, or the server does not start.
    Required,
    /// Workers are not confined.
    Off,
}

/// How far a worker is confined.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Confinement {
    /// Not at all, as configured.
    Off,
    /// Not at all, and the reason.
    Impossible(String),
    /// As far as this ABI of Landlock reaches.
    Holds {
        /// The version, at least 1.
        abi: i32,
    },
}

/// What this was tested with. Kernels that know less do what they can.
const KNOWN: ABI = ABI::V7;

/// From here on every way to change a file is covered.
const REQUIRED: i32 = ABI::V3 as i32;

/// The folders that a confined worker may use, and how.
#[derive(Clone, Debug, Default)]
pub struct Reach<'r> {
    /// What is beneath them may be read.
    pub readable: Vec<BorrowedFd<'r>>,
    /// What is beneath them may be written, made, renamed and removed too: files, folders and links
    /// to files, and nothing else.
    pub writable: Vec<BorrowedFd<'r>>,
}

/// Confines the calling thread, and every thread that it will make, to what is in `reach`. It
/// cannot be undone.
///
/// # Errors
/// [`Error::Confine`] where `how` is [`Confine::Required`] and the kernel cannot. The thread may be
/// confined in part.
pub fn confine(reach: &Reach<'_>, how: Confine) -> Result<Confinement, Error> {
    confine_as(reach, how, KNOWN as i32)
}

/// The same, with no more than a kernel of this ABI has: for tests.
///
/// # Errors
/// As [`confine`].
#[doc(hidden)]
pub fn confine_as(reach: &Reach<'_>, how: Confine, abi: i32) -> Result<Confinement, Error> {
    if how == Confine::Off {
        return Ok(Confinement::Off);
    }
    let holds = match restrict(reach, ABI::from(abi)) {
        Ok(LandlockStatus::Available { effective_abi, .. }) => Confinement::Holds {
            abi: abi.min(effective_abi as i32),
        },
        Ok(LandlockStatus::NotEnabled) => {
            Confinement::Impossible("Landlock is not enabled (lsm= of the kernel)".into())
        }
        Ok(LandlockStatus::NotImplemented) => Confinement::Impossible(
            "this kernel has no Landlock, or a system call filter forbids it".into(),
        ),
        Err(error) => Confinement::Impossible(error.to_string()),
    };
    match (how, &holds) {
        (Confine::Required, Confinement::Impossible(why)) => {
            Err(Error::Confine { why: why.clone() })
        }
        (Confine::Required, Confinement::Holds { abi }) if *abi < REQUIRED => Err(Error::Confine {
            why: format!("Landlock ABI {abi} does not cover truncating; Linux 6.2 has ABI 3"),
        }),
        _ => Ok(holds),
    }
}

impl Confine {
    /// Finds out how far workers can be confined, by confining a thread that ends at once.
    ///
    /// # Errors
    /// As [`confine`].
    pub fn probe(self) -> Result<Confinement, Error> {
        let tried = thread::scope(|scope| scope.spawn(|| confine(&Reach::default(), self)).join());
        tried.unwrap_or_else(|_| {
            Err(Error::Confine {
                why: "the attempt panicked".into(),
            })
        })
    }
}

fn restrict(reach: &Reach<'_>, abi: ABI) -> Result<LandlockStatus, RulesetError> {
    let mut ruleset = Ruleset::default();
    ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let mut ruleset = ruleset.create()?;
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = reading
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let readable = reach.readable.iter().map(|root| (root, reading));
    let writable = reach.writable.iter().map(|root| (root, writing));
    for (root, access) in readable.chain(writable) {
        // What the kernel does not know it does not forbid.
        let known = access & AccessFs::from_all(abi);
        ruleset = ruleset.add_rule(PathBeneath::new(root, known))?;
    }
    // Where it is not there, cold files are read more slowly.
    if let Ok(null) = null() {
        ruleset = ruleset.add_rule(PathBeneath::new(null, AccessFs::WriteFile))?;
    }
    Ok(ruleset.restrict_self()?.landlock)
}

fn null() -> Result<File, rustix::io::Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty()).map(File::from)
}

impl FromStr for Confine {
    type Err = String;

    fn from_str(text: &str) -> Result<Confine, String> {
        match text {
            "auto" => Ok(Confine::Auto),
            "required" => Ok(Confine::Required),
            "off" => Ok(Confine::Off),
            _ => Err("expected one of auto, required, off".into()),
        }
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Confinement::Off => f.write_str("workers are not confined, as configured"),
            Confinement::Impossible(why) => write!(f, "workers are not confined: {why}"),
            Confinement::Holds { abi } => {
                write!(f, "workers are confined by Landlock (ABI {abi}): ")?;
                f.write_str("they can access only what is served")?;
                if *abi >= ABI::V4 as i32 {
                    f.write_str("; they cannot connect")?;
                }
                if *abi >= ABI::V6 as i32 {
                    f.write_str("; they cannot signal other processes")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_confinement_that_holds_is_named_with_its_abi() {
        let reported = |abi| Confinement::Holds { abi }.to_string();
        assert!(reported(1).contains("ABI 1") && !reported(3).contains("connect"));
        assert!(reported(4).contains("connect") && !reported(5).contains("signal"));
        assert!(reported(7).contains("signal"));
    }

    #[test]
    fn off_is_off() {
        assert_eq!(Confine::Off.probe().unwrap(), Confinement::Off);
    }

    #[test]
    fn a_probe_confines_nobody_else() {
        let _tried = Confine::Auto.probe().unwrap();
        assert!(tempfile::tempfile().is_ok());
    }
}
