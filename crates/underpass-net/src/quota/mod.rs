//! Quotas of clients: connections and bytes per second, which all workers of a server share.

pub(crate) mod client_table;
pub(crate) mod min_rate;
pub(crate) mod rate_limiter;

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::ConnectionLimits;
use crate::quota::client_table::{ClientPermit, ClientTable, PerClientLimits};
use crate::quota::rate_limiter::{RateLimiter, RateLimiters};

/// The quotas that all workers share; empty unless a limit is configured.
#[derive(Default)]
pub(crate) struct SharedQuotas {
    clients: Option<Arc<ClientTable>>,
    rate_limiter: Option<Arc<RateLimiter>>,
}

/// The client has reached its connection limit.
pub(crate) struct TooMany;

impl SharedQuotas {
    pub(crate) fn new(limits: &ConnectionLimits) -> SharedQuotas {
        SharedQuotas {
            clients: PerClientLimits::by(limits).map(|each| Arc::new(ClientTable::new(each))),
            rate_limiter: limits
                .rate_all_max
                .map(|rate| Arc::new(RateLimiter::new(rate))),
        }
    }

    /// A permit for a connection of `client`, if connections are counted.
    pub(crate) fn permit(&self, client: IpAddr) -> Result<Option<ClientPermit>, TooMany> {
        let Some(clients) = &self.clients else {
            return Ok(None);
        };
        clients.permit(client).map(Some).ok_or(TooMany)
    }

    /// The rate limiters of a connection of the client with `permit`.
    pub(crate) fn rate_limiters(&self, permit: Option<&ClientPermit>) -> Option<RateLimiters> {
        let client = permit.and_then(ClientPermit::rate_limiter);
        RateLimiters::of([client, self.rate_limiter.as_ref()])
    }

    /// The quotas of a new generation: open connections are still counted, unless the limits have
    /// changed.
    pub(crate) fn after(
        before: Option<&Arc<SharedQuotas>>,
        limits: &ConnectionLimits,
    ) -> Arc<SharedQuotas> {
        let new = SharedQuotas::new(limits);
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
