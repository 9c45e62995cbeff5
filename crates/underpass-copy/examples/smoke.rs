use std::sync::atomic::AtomicBool;
use underpass_copy::*;
struct O;
impl Observer for O {
    fn told(&self, e: Event) {
        eprintln!("{e:?}");
    }
    fn may_overwrite(&self, _: &Overwriting) -> bool {
        true
    }
    fn curiosity(&self) -> Curiosity {
        if std::env::var_os("V").is_some() {
            Curiosity::Everything
        } else {
            Curiosity::Problems
        }
    }
}
fn main() {
    let mut o = Options::default();
    let mut ops = vec![];
    for a in std::env::args_os().skip(1) {
        match a.to_str() {
            Some("-r") => o.recursion = Recursion::On,
            Some("-a") => {
                o.recursion = Recursion::On;
                o.links = Links::Kept;
                let t = Wish::Required;
                o.preserve = Preserve {
                    mode: t,
                    ownership: t,
                    timestamps: t,
                    links: Wish::Required,
                    context: Wish::Tried,
                    xattr: Wish::Tried,
                };
            }
            Some(j) if j.starts_with("-j") => {
                o.jobs = std::num::NonZeroUsize::new(j[2..].parse().unwrap())
            }
            Some("-L") => o.links = Links::Followed,
            Some("--parents") => o.naming = Naming::Parents,
            Some("--atomic") => o.placement = Placement::Atomic,
            Some("--dry") => o.effect = Effect::ToldOnly,
            _ => ops.push(a),
        }
    }
    let host = underpass::Host::probe();
    let s = copy(
        &ops,
        &o,
        Around {
            host: &host,
            observer: &O,
            progress: &Progress::default(),
            stop: &AtomicBool::new(false),
        },
    );
    if std::env::var_os("V").is_some() {
        eprintln!("{s:?}");
    }
    std::process::exit((s.errors > 0) as i32);
}
