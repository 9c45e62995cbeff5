//! Transfers between two sides in this process, over loopback and through a proxy that cuts.

mod codes;
mod cuts;
mod hostile;
mod kit;
mod whole;
