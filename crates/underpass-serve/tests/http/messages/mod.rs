//! Heads and bodies of responses.

mod answers;
mod codings;
mod compressed;
mod explain;
mod fields;
mod repr_digest;

use underpass_testkit::HttpResponse;

fn coding(answer: &HttpResponse) -> String {
    let coding = answer.field("content-encoding").unwrap_or("plain");
    format!("{} {coding}", answer.status)
}
