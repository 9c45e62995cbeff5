//! Writes a request of every kind and version into a folder, as seeds for the fuzz target
//! `broker_requests`.

mod seeds;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.expect("the folder is the argument");
    fs::create_dir_all(&folder)?;
    let mut seeds = seeds::seeds().into_iter();
    seeds.try_for_each(|(name, frame)| fs::write(folder.join(name), frame))
}
