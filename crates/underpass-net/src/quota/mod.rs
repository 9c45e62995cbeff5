//! Quotas of clients: connections and bytes per second, which all workers of a server share.

pub(crate) mod client_table;
pub(crate) mod log_throttle;
pub(crate) mod min_rate;
pub(crate) mod rate_limiter;

use std::sync::Arc;

use crate::limits::ConnectionLimits;
use crate::quota::client_table::{ClientPermit, ClientTable, PerClientLimits};
use crate::quota::rate_limiter::{RateLimiter, RateLimiters};

/// The quotas that all workers share; empty unless a limit is configured.
#[derive(Default)]
pub(crate) struct SharedQuotas {
    pub(crate) clients: Option<Arc<ClientTable>>,
    rate_limiter: Option<Arc<RateLimiter>>,
}

impl SharedQuotas {
    fn new(limits: &ConnectionLimits, workers: usize) -> SharedQuotas {
        let is_limited =
            limits.connections_per_client_max.is_some() || limits.rate_per_client_max.is_some();
        let table = || Arc::new(ClientTable::new(PerClientLimits::by(limits, workers)));
        SharedQuotas {
            clients: is_limited.then(table),
            rate_limiter: limits
                .rate_all_max
                .map(|rate| Arc::new(RateLimiter::new(rate))),
        }
    }

    /// Returns the rate limiters of a connection of the client with `permit`.
    pub(crate) fn rate_limiters(&self, permit: Option<&ClientPermit>) -> Option<RateLimiters> {
        let client = permit.and_then(ClientPermit::rate_limiter);
        RateLimiters::of([client, self.rate_limiter.as_ref()])
    }

    /// Returns the quotas of a new generation of `workers`, each with `limits`: open connections
    /// still count, unless the limits have changed.
    pub(crate) fn after(
        before: Option<&Arc<SharedQuotas>>,
        limits: &ConnectionLimits,
        workers: usize,
    ) -> Arc<SharedQuotas> {
        let new = SharedQuotas::new(limits, workers);
        Arc::new(match before {
            Some(before) => SharedQuotas {
                clients: match (&before.clients, new.clients) {
                    (Some(old), Some(new)) if old.each() == new.each() => Some(Arc::clone(old)),
                    (_, new) => new,
                },
                ..new
            },
            None => new,
        })
    }
}
