//! Values of pax records.

use crate::error::TarFault;
use crate::limits::PATH_BYTES_MAX;
use crate::number::parse_decimal;

/// Sets a value once. Of two different ones POSIX takes the last, other readers the first.
pub(crate) fn set<T: PartialEq>(
    slot: &mut Option<T>,
    key: &'static str,
    value: T,
) -> Result<(), TarFault> {
    match slot {
        Some(former) if *former != value => Err(TarFault::Contradiction(key)),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}

pub(crate) fn name(key: &'static str, value: &[u8]) -> Result<Vec<u8>, TarFault> {
    match value {
        [] => Err(TarFault::Record(key)),
        _ if value.contains(&0) => Err(TarFault::Record(key)),
        _ if value.len() > PATH_BYTES_MAX => Err(TarFault::NameTooLong(key)),
        _ => Ok(value.to_vec()),
    }
}

pub(crate) fn number(key: &'static str, value: &[u8]) -> Result<u64, TarFault> {
    parse_decimal(value).map_err(|_| TarFault::Record(key))
}
