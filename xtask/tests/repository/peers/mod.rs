//! The programs that are compared with Underpass, by language.

mod c;
mod contract;
mod go;
mod java;
mod python;
