//! Copies a file the fastest way its file systems offer, shows the progress, and stops within a few
//! milliseconds when a file named STOP appears.
//!
//!     cargo run -p underpass --example copy_progress -- big.iso copy.iso

use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use underpass::drive::blocking::Driver;
use underpass::{Kernel, Progress, Sink, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: copy_progress FROM TO".into());
    };
    let (from, to) = (File::open(from)?, File::create(to)?);
    let (source, sink) = (Source::whole(&from)?, Sink::new(&to)?);
    let kernel = Kernel::probe();

    // Called before every call; the byte count is exact at that point.
    let mut watch = |progress: Progress| {
        match progress.percent() {
            Some(percent) => eprint!("\r{percent} %"),
            None => eprint!("\r{} bytes", progress.done),
        }
        if Path::new("STOP").exists() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let driver = Driver::new(&kernel);
    println!("plan: {}", driver.plan(&source, &sink));
    let account = driver.watch(&mut watch).run(&source, &sink)?;
    println!("\naccount: {account}");
    Ok(())
}
