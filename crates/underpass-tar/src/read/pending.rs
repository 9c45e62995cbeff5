//! A member whose headers are being read, and the extensions before them.

use crate::error::TarFault;
use crate::header::{HeaderFormat, ReceivedHeader};
use crate::limits::PATH_BYTES_MAX;
use crate::member::{Member, MemberKind, MemberOwner, SparseExtent, TarTime};
use crate::number::parse_field;
use crate::pax::{PaxRecords, PaxScope};
use crate::sparse::{SparseForm, add_old, check};

/// The extensions that apply to the next member.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    /// Bytes of the extension that is being read.
    pub(super) size: usize,
    pax: Option<PaxRecords>,
    long_path: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
}

impl Extensions {
    pub(super) fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_path.is_none() && self.long_target.is_none()
    }

    /// The path that they give the member, or nothing.
    pub(super) fn path(&self) -> Vec<u8> {
        let of_pax = self.pax.as_ref();
        let of_pax = of_pax.and_then(|pax| pax.sparse.name.as_ref().or(pax.path.as_ref()));
        of_pax
            .or(self.long_path.as_ref())
            .cloned()
            .unwrap_or_default()
    }

    /// Rejects a second extension of a kind, and GNU's beside one of pax. Implementations disagree
    /// which of them counts.
    pub(super) fn announce(&self, flag: u8) -> Result<(), TarFault> {
        let is_allowed = match flag {
            b'L' => self.pax.is_none() && self.long_path.is_none(),
            b'K' => self.pax.is_none() && self.long_target.is_none(),
            _ => self.is_empty(),
        };
        match is_allowed {
            true => Ok(()),
            false => Err(TarFault::StrayExtension),
        }
    }

    pub(super) fn add(&mut self, flag: u8, text: &[u8]) -> Result<(), TarFault> {
        match flag {
            b'L' => self.long_path = Some(long_name("path", text)?),
            b'K' => self.long_target = Some(long_name("link target", text)?),
            _ => self.pax = Some(PaxRecords::parse(text, PaxScope::Member)?),
        }
        Ok(())
    }
}

/// Reads the name of a GNU extension, which ends with zero bytes.
fn long_name(what: &'static str, text: &[u8]) -> Result<Vec<u8>, TarFault> {
    let end = text.iter().rposition(|&byte| byte != 0);
    let text = &text[..end.map_or(0, |end| end + 1)];
    check_name(what, text)?;
    Ok(text.to_vec())
}

fn check_name(what: &'static str, name: &[u8]) -> Result<(), TarFault> {
    match name {
        [] => Err(TarFault::Name(what)),
        _ if name.contains(&0) => Err(TarFault::Name(what)),
        _ if name.len() > PATH_BYTES_MAX => Err(TarFault::NameTooLong(what)),
        _ => Ok(()),
    }
}

/// Where the map of a member is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MapPlace {
    /// Read already, or there is none.
    Known,
    /// In the header, and in a block after it if there are more.
    Blocks { more: bool },
    /// At the start of the content.
    Content,
}

/// A member, except for what the map of a sparse file says.
#[derive(Debug)]
pub(super) struct Pending {
    member: Member,
    ignored: Vec<Vec<u8>>,
    /// Bytes in the stream after the header.
    pub(super) stored: u64,
    pub(super) map: MapPlace,
    pub(super) extents: Vec<SparseExtent>,
    /// The size of a sparse file.
    real_size: Option<u64>,
}

impl Pending {
    /// Returns the member of a header; an error comes with the path, if that is known.
    pub(super) fn new(
        header: &ReceivedHeader<'_>,
        extensions: Extensions,
        defaults: &PaxRecords,
    ) -> Result<Pending, (Vec<u8>, TarFault)> {
        let named = (!extensions.is_empty()).then(|| extensions.path());
        Pending::of(header, extensions, defaults).map_err(|fault| {
            let path = named.filter(|path| !path.is_empty());
            (path.unwrap_or_else(|| header.path()), fault)
        })
    }

    fn of(
        header: &ReceivedHeader<'_>,
        extensions: Extensions,
        defaults: &PaxRecords,
    ) -> Result<Pending, TarFault> {
        let mut pax = extensions.pax.unwrap_or_default();
        let stored = pax.size.map_or_else(|| header.size(), Ok)?;
        let sparse = pax.sparse.form()?;
        let path = pax.sparse.name.take().or(pax.path).or(extensions.long_path);
        let mut path = path.unwrap_or_else(|| header.path());
        check_name("path", &path)?;
        let target = pax.target.or(extensions.long_target);
        let target = target.unwrap_or_else(|| header.target().to_vec());
        let kind = kind(header.flag(), stored, &path, target)?;
        if stored > 0 && !kind.has_content() {
            return Err(TarFault::UnexpectedContent);
        }
        match kind {
            MemberKind::Folder => strip_slashes(&mut path),
            _ if path.ends_with(b"/") => return Err(TarFault::Name("path")),
            _ => {}
        }
        let modified = match pax.modified.or(defaults.modified) {
            Some(modified) => modified,
            None => TarTime {
                seconds: header.mtime()?,
                nanoseconds: 0,
            },
        };
        let user = pax.user.or_else(|| defaults.user.clone());
        let group = pax.group.or_else(|| defaults.group.clone());
        let owner = MemberOwner {
            uid: pax.uid.or(defaults.uid).map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.or(defaults.gid).map_or_else(|| header.gid(), Ok)?,
            user: user.unwrap_or_else(|| header.user().to_vec()),
            group: group.unwrap_or_else(|| header.group().to_vec()),
        };
        let member = Member {
            path,
            kind,
            mode: header.mode()?,
            modified,
            owner,
            xattrs: pax.xattrs,
        };
        let pending = Pending {
            member,
            ignored: pax.ignored,
            stored,
            map: MapPlace::Known,
            extents: Vec::new(),
            real_size: None,
        };
        pending.with_map(header, sparse)
    }

    pub(super) fn path(&self) -> Vec<u8> {
        self.member.path.clone()
    }

    fn with_map(
        mut self,
        header: &ReceivedHeader<'_>,
        sparse: SparseForm,
    ) -> Result<Pending, TarFault> {
        let is_file = matches!(self.member.kind, MemberKind::File { .. });
        match sparse {
            SparseForm::None if header.flag() == b'S' => self.with_old_map(header),
            SparseForm::None => Ok(self),
            _ if !is_file || header.flag() == b'S' => Err(TarFault::SparseMap),
            SparseForm::Known { size, extents } => {
                self.real_size = Some(size);
                self.extents = extents;
                Ok(self)
            }
            SparseForm::InContent { size } => {
                self.real_size = Some(size);
                self.map = MapPlace::Content;
                Ok(self)
            }
        }
    }

    fn with_old_map(mut self, header: &ReceivedHeader<'_>) -> Result<Pending, TarFault> {
        let (extents, more, size) = header.sparse();
        let size = parse_field(size).ok().flatten();
        let size = size.and_then(|size| u64::try_from(size).ok());
        if header.format != HeaderFormat::Gnu || size.is_none() {
            return Err(TarFault::SparseMap);
        }
        self.real_size = size;
        let ended = add_old(&mut self.extents, extents)?;
        if ended && more {
            return Err(TarFault::SparseMap);
        }
        self.map = MapPlace::Blocks { more };
        Ok(self)
    }

    /// Checks the map, which has been read.
    pub(super) fn check(&self) -> Result<(), TarFault> {
        let check = |size| check(&self.extents, size, self.stored);
        self.real_size.map_or(Ok(()), check)
    }

    /// Returns the member, and the keys of its records that are not read.
    pub(super) fn finish(mut self) -> (Member, Vec<Vec<u8>>) {
        let mut member = self.member;
        if let Some(size) = self.real_size {
            self.extents.retain(|extent| extent.len > 0);
            member.kind = MemberKind::SparseFile {
                size,
                extents: self.extents,
            };
        }
        (member, self.ignored)
    }
}

fn kind(flag: u8, size: u64, path: &[u8], target: Vec<u8>) -> Result<MemberKind, TarFault> {
    let linked = |target: Vec<u8>| check_name("link target", &target).map(|()| target);
    Ok(match flag {
        // Unix v7 has no type for folders.
        b'0' | 0 if path.ends_with(b"/") => MemberKind::Folder,
        b'0' | 0 | b'7' | b'S' => MemberKind::File { size },
        b'1' => MemberKind::HardLink(linked(target)?),
        b'2' => MemberKind::Symlink(linked(target)?),
        b'3' => MemberKind::CharacterDevice,
        b'4' => MemberKind::BlockDevice,
        b'5' => MemberKind::Folder,
        b'6' => MemberKind::Fifo,
        flag => MemberKind::Other { flag, size },
    })
}

fn strip_slashes(path: &mut Vec<u8>) {
    while path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
}
