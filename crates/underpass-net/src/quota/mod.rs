//! Quotas of clients: connections and bytes per second.

pub(crate) mod client_table;
pub(crate) mod min_rate;
pub(crate) mod rate_limiter;
pub(crate) mod shared;
