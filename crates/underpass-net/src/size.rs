//! Numbers of bytes in a configuration: `65536`, `"64KiB"`, `"10MB"`.
//!
//! For `#[serde(deserialize_with = "…")]`, like `humantime-serde` for times.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use bytesize::ByteSize;
use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Deserializes a number with an optional unit. `kB`, `MB`, `GB` are powers of 1000, `KiB`, `MiB`,
/// `GiB` of 1024, in any case.
///
/// # Errors
/// The value has another form, or does not fit.
pub fn bytes<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_any(Bytes(PhantomData))
}

/// Deserializes an optional number with an optional unit that is never 0.
///
/// # Errors
/// As [`bytes`].
pub fn some_bytes<'de, D>(deserializer: D) -> Result<Option<NonZeroU64>, D::Error>
where
    D: Deserializer<'de>,
{
    bytes(deserializer).map(Some)
}

struct Bytes<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Bytes<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, such as 65536, \"64KiB\" or \"10MB\"")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        let wrong = || match value {
            0 => E::custom("0 is not a limit; omit the option"),
            _ => E::custom(format!("{value} bytes are too many")),
        };
        T::try_from(value).map_err(|_| wrong())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(
                serde::de::Unexpected::Signed(value),
                &self,
            )),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        match value.parse::<ByteSize>() {
            Ok(size) => self.visit_u64(size.as_u64()),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Str(value), &self)),
        }
    }
}
