//! Transfers between two sides in this process, over loopback and through a proxy that cuts.

mod cuts;
mod hostile;
mod kit;
mod whole;
