//! A copy with progress, on the calling thread.

use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use underpass::drive::blocking::Driver;
use underpass::{Kernel, Mechanism, Policy, Progress, Sink, Source};

pub fn with_progress(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let (source, sink) = (Source::whole(&from)?, Sink::new(&to)?);
    let kernel = Kernel::probe();
    let mut percent = 0;
    let mut watch = |progress: Progress| {
        percent = progress.percent().unwrap_or(percent);
        ControlFlow::Continue(())
    };
    let account = Driver::new(&kernel)
        .policy(Policy::only(Mechanism::ReadWrite))
        .watch(&mut watch)
        .run(&source, &sink)?;
    println!("copied {} bytes, {percent} %", account.bytes());
    Ok(())
}
