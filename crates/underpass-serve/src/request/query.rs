//! What stands behind the `?` of a target, as far as this server knows it.
//!
//! Pages give their scripts and pictures queries of their own (`app.js?hash=3f2a`), so whatever is
//! not known, or has another value than one that is known, says nothing.

use crate::http::digest::Algorithm;
use crate::request::path::decode_lossy;

/// The known parameters of a query. Of one that stands twice the first counts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Query {
    key: Option<Key>,
    direction: Option<Direction>,
    /// `search`: only names that contain this are listed. Empty where all are.
    pub(crate) search: Vec<u8>,
    /// `format`
    pub(crate) format: Option<Format>,
    /// `download`, with any value or none
    pub(crate) download: Option<Download>,
    /// `hash`
    pub(crate) hash: Option<Algorithm>,
}

/// How a listing is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    Html,
    Json,
}

/// What is to be saved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Download {
    /// A file as it is.
    File,
    /// A folder as one file; a file as it is.
    Archive(Compression),
}

/// How an archive is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Compression {
    Plain,
    Zstd,
}

impl Query {
    /// Reads a query as forms write it.
    pub(crate) fn parse(raw: Option<&[u8]>) -> Query {
        let mut query = Query::default();
        for pair in raw.unwrap_or_default().split(|&byte| byte == b'&') {
            let equals = pair.iter().position(|&byte| byte == b'=');
            let (name, value) = pair.split_at(equals.unwrap_or(pair.len()));
            query.read(name, value.get(1..).unwrap_or_default());
        }
        query
    }

    fn read(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"sort" => self.key = self.key.or(Key::named(value)),
            b"order" => self.direction = self.direction.or(Direction::named(value)),
            b"format" => self.format = self.format.or(Format::named(value)),
            b"download" => self.download = self.download.or(Some(Download::named(value))),
            b"hash" => self.hash = self.hash.or(Algorithm::named(value)),
            b"search" if self.search.is_empty() => self.search = decode_lossy(value),
            _ => {}
        }
    }

    /// What a folder is to be sent as, if it is to be one file.
    pub(crate) fn archive(&self) -> Option<Compression> {
        match self.download {
            Some(Download::Archive(compression)) => Some(compression),
            Some(Download::File) | None => None,
        }
    }

    /// By name, ascending, unless something else is asked for.
    pub(crate) fn order(&self) -> Order {
        Order {
            key: self.key.unwrap_or(Key::Name),
            direction: self.direction.unwrap_or(Direction::Ascending),
        }
    }
}

impl Download {
    fn named(value: &[u8]) -> Download {
        Compression::named(value).map_or(Download::File, Download::Archive)
    }
}

impl Format {
    fn named(value: &[u8]) -> Option<Format> {
        match value {
            b"html" => Some(Format::Html),
            b"json" => Some(Format::Json),
            _ => None,
        }
    }
}

impl Compression {
    fn named(value: &[u8]) -> Option<Compression> {
        match value {
            b"tar" => Some(Compression::Plain),
            b"tar.zst" => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// What the archive's name ends with.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Compression::Plain => ".tar",
            Compression::Zstd => ".tar.zst",
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Compression::Plain => "application/x-tar",
            Compression::Zstd => "application/zstd",
        }
    }
}

/// What is compared, and which way round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Order {
    pub(crate) key: Key,
    pub(crate) direction: Direction,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Key {
    Name,
    Size,
    Date,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Direction {
    Ascending,
    Descending,
}

impl Key {
    pub(crate) const ALL: [Key; 3] = [Key::Name, Key::Size, Key::Date];

    pub(crate) fn named(value: &[u8]) -> Option<Key> {
        Key::ALL
            .into_iter()
            .find(|key| key.name().as_bytes() == value)
    }

    /// As it stands in a query.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Key::Name => "name",
            Key::Size => "size",
            Key::Date => "date",
        }
    }
}

impl Direction {
    pub(crate) fn named(value: &[u8]) -> Option<Direction> {
        match value {
            b"asc" => Some(Direction::Ascending),
            b"desc" => Some(Direction::Descending),
            _ => None,
        }
    }

    /// As it stands in a query.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Ascending => "asc",
            Direction::Descending => "desc",
        }
    }

    pub(crate) fn reversed(self) -> Direction {
        match self {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_and_the_rest_says_nothing() {
        let query = Query::parse(Some(
            b"sort=size&order=desc&search=a+b%25%zz&format=json&download=tar.zst&hash=blake3",
        ));
        assert_eq!(query.order().key, Key::Size);
        assert_eq!(query.order().direction, Direction::Descending);
        assert_eq!(query.search, b"a b%%zz");
        assert_eq!(query.format, Some(Format::Json));
        assert_eq!(query.archive(), Some(Compression::Zstd));
        assert_eq!(query.hash, Some(Algorithm::Blake3));
        for nothing in [
            &b""[..],
            b"hash=3f2a",
            b"sort",
            b"=",
            b"&&=&sort=",
            b"Sort=size",
        ] {
            assert_eq!(Query::parse(Some(nothing)), Query::default());
        }
        assert_eq!(Query::parse(None), Query::default());
    }

    #[test]
    fn of_two_the_first_counts() {
        let query = Query::parse(Some(b"sort=date&sort=size"));
        assert_eq!(query.order().key, Key::Date);
    }

    #[test]
    fn a_download_needs_no_value() {
        for file in [&b"download"[..], b"a=b&download=", b"download=1"] {
            let query = Query::parse(Some(file));
            assert_eq!(query.download, Some(Download::File));
            assert_eq!(query.archive(), None);
        }
        assert_eq!(Query::parse(Some(b"downloads")).download, None);
    }
}
