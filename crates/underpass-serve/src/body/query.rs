//! The known parameters of a target's query.
//!
//! Pages add queries to their scripts and images (`app.js?hash=3f2a`), so unknown parameters and
//! values are ignored.

use serde::Deserialize;
use serde::de::value::{self, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use underpass_http::fields::accept::prefers;
use underpass_http::fields::digest::HashAlgorithm;
use underpass_http::path::decode_lossy;

use crate::access::links::SignedParameter;

/// The known parameters of a query. Of a repeated one, the first counts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Query {
    key: Option<SortKey>,
    direction: Option<SortDirection>,
    /// `search`: only names that contain this are listed. Empty to list all.
    pub(crate) search: Vec<u8>,
    /// `format`
    pub(crate) format: Option<ListingFormat>,
    /// `download`, with any value or none
    pub(crate) download: Option<Download>,
    /// `hash`
    pub(crate) hash: Option<HashAlgorithm>,
    /// `signed`
    pub(crate) signed: Option<SignedParameter>,
}

/// The format of a listing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListingFormat {
    Html,
    Json,
}

/// The requested kind of download.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Download {
    /// The file itself.
    File,
    /// An archive of a folder; a file is sent as itself.
    Archive(ArchiveFormat),
    /// An unsupported archive of a folder; a file is sent as itself.
    OtherArchive,
}

/// Archive formats that users of other servers request.
const OTHER_ARCHIVES: [&[u8]; 8] = [
    b"zip", b"tgz", b"tar.gz", b"tar.bz2", b"tar.xz", b"gz", b"7z", b"rar",
];

/// The format of an archive.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub(crate) enum ArchiveFormat {
    #[serde(rename = "tar")]
    Plain,
    #[serde(rename = "tar.zst")]
    Zstd,
}

impl ListingFormat {
    /// Returns HTML, unless the client prefers JSON.
    pub(crate) fn preferred(accept: Option<&[u8]>) -> ListingFormat {
        match prefers(accept, ("application", "json"), ("text", "html")) {
            true => ListingFormat::Json,
            false => ListingFormat::Html,
        }
    }
}

impl Query {
    /// Parses a form-encoded query.
    pub(crate) fn parse(raw: &[u8]) -> Query {
        let mut query = Query::default();
        for pair in raw.split(|&byte| byte == b'&') {
            let equals = pair.iter().position(|&byte| byte == b'=');
            let (name, value) = pair.split_at(equals.unwrap_or(pair.len()));
            query.read(name, value.get(1..).unwrap_or_default());
        }
        query
    }

    fn read(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"sort" => self.key = self.key.or(known(value)),
            b"order" => self.direction = self.direction.or(known(value)),
            b"format" => self.format = self.format.or(known(value)),
            b"download" => {
                let download = match known(value) {
                    Some(format) => Download::Archive(format),
                    None if OTHER_ARCHIVES.contains(&value) => Download::OtherArchive,
                    None => Download::File,
                };
                self.download.get_or_insert(download);
            }
            b"hash" => self.hash = self.hash.or(known(value)),
            b"signed" if self.signed.is_none() => self.signed = SignedParameter::parse(value),
            b"search" if self.search.is_empty() => self.search = decode_lossy(value),
            _ => {}
        }
    }

    /// Returns the archive format for a folder, if an archive is requested.
    pub(crate) fn archive(&self) -> Option<ArchiveFormat> {
        match self.download {
            Some(Download::Archive(compression)) => Some(compression),
            Some(Download::File | Download::OtherArchive) | None => None,
        }
    }

    /// Returns the sort order: by name, ascending, by default.
    pub(crate) fn order(&self) -> SortOrder {
        SortOrder {
            key: self.key.unwrap_or(SortKey::Name),
            direction: self.direction.unwrap_or(SortDirection::Ascending),
        }
    }
}

/// Parses a value by the names that `Deserialize` defines.
fn known<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    let value = std::str::from_utf8(value).ok()?;
    let value: StrDeserializer<'_, value::Error> = value.into_deserializer();
    T::deserialize(value).ok()
}

impl ArchiveFormat {
    /// Returns the extension of the archive's name.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            ArchiveFormat::Plain => ".tar",
            ArchiveFormat::Zstd => ".tar.zst",
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            ArchiveFormat::Plain => "application/x-tar",
            ArchiveFormat::Zstd => "application/zstd",
        }
    }
}

/// The sort key and direction of a listing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SortOrder {
    pub(crate) key: SortKey,
    pub(crate) direction: SortDirection,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SortKey {
    Name,
    Size,
    Date,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub(crate) enum SortDirection {
    #[serde(rename = "asc")]
    Ascending,
    #[serde(rename = "desc")]
    Descending,
}

impl SortKey {
    pub(crate) const ALL: [SortKey; 3] = [SortKey::Name, SortKey::Size, SortKey::Date];

    /// Returns the name in a query.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Size => "size",
            SortKey::Date => "date",
        }
    }
}

impl SortDirection {
    /// Returns the name in a query.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SortDirection::Ascending => "asc",
            SortDirection::Descending => "desc",
        }
    }

    pub(crate) fn reversed(self) -> SortDirection {
        match self {
            SortDirection::Ascending => SortDirection::Descending,
            SortDirection::Descending => SortDirection::Ascending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_and_the_rest_says_nothing() {
        let query = Query::parse(
            b"sort=size&order=desc&search=a+b%25%zz&format=json&download=tar.zst&hash=blake3",
        );
        assert_eq!(query.order().key, SortKey::Size);
        assert_eq!(query.order().direction, SortDirection::Descending);
        assert_eq!(query.search, b"a b%%zz");
        assert_eq!(query.format, Some(ListingFormat::Json));
        assert_eq!(query.archive(), Some(ArchiveFormat::Zstd));
        assert_eq!(query.hash, Some(HashAlgorithm::Blake3));
        for nothing in [
            &b""[..],
            b"hash=3f2a",
            b"sort",
            b"=",
            b"&&=&sort=",
            b"Sort=size",
        ] {
            assert_eq!(Query::parse(nothing), Query::default());
        }
    }

    #[test]
    fn of_two_the_first_counts() {
        let query = Query::parse(b"sort=date&sort=size&search=a&search=b");
        assert_eq!(query.order().key, SortKey::Date);
        assert_eq!(query.search, b"a");
    }

    #[test]
    fn an_order_is_read_by_the_names_that_it_is_written_with() {
        let order = |name: &str| Query::parse(name.as_bytes()).order();
        for key in SortKey::ALL {
            assert_eq!(order(&format!("order=desc&sort={}", key.name())).key, key);
        }
        for direction in [SortDirection::Ascending, SortDirection::Descending] {
            let named = order(&format!("order={}", direction.name()));
            assert_eq!(named.direction, direction);
            assert_eq!(named.direction.reversed().reversed(), direction);
            assert_ne!(named.direction.reversed(), direction);
        }
        assert_eq!(order("order=ascending").direction.name(), "asc");
    }

    #[test]
    fn archives_have_the_extensions_and_types_of_their_formats() {
        let (plain, zstd) = (ArchiveFormat::Plain, ArchiveFormat::Zstd);
        assert_eq!(
            [plain, zstd].map(ArchiveFormat::extension),
            [".tar", ".tar.zst"]
        );
        let types = ["application/x-tar", "application/zstd"];
        assert_eq!([plain, zstd].map(ArchiveFormat::media_type), types);
    }

    #[test]
    fn a_download_needs_no_value() {
        for file in [&b"download"[..], b"a=b&download=", b"download=1"] {
            let query = Query::parse(file);
            assert_eq!(query.download, Some(Download::File));
            assert_eq!(query.archive(), None);
        }
        assert_eq!(Query::parse(b"downloads").download, None);
        let other = Query::parse(b"download=zip");
        assert_eq!(other.download, Some(Download::OtherArchive));
        assert_eq!(other.archive(), None);
    }
}
