//! The response for a denied request. It depends on the rules alone, not on whether the path
//! exists.

use underpass_http::status::{HttpError, Status};

use crate::access::options::AccessOptions;
use crate::access::rules::AccessRefusal;
use crate::answer::text::TextResponse;
use crate::rules::FieldValue;

/// Returns the response for a denial that is not concealed.
pub(crate) fn refused(refusal: AccessRefusal, access: &AccessOptions) -> TextResponse {
    if let (Some(wait), true) = (refusal.retry_after, refusal.takes_password) {
        let seconds = (wait.as_secs() + 1).to_string();
        let busy = TextResponse::new(TOO_MANY_LOGINS);
        return busy.with_field("Retry-After", seconds.as_bytes());
    }
    let realm = access.realm.as_ref();
    let realm = realm.map_or("underpass", FieldValue::as_str);
    // Clients without support for Bearer may send a token as a password.
    let takes_basic = refusal.takes_password || refusal.takes_token;
    let challenges = [
        (
            takes_basic,
            format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
        ),
        (refusal.takes_token, format!("Bearer realm=\"{realm}\"")),
    ];
    let error = match (takes_basic, refusal.link_expired) {
        (false, false) => FORBIDDEN,
        (false, true) => LINK_EXPIRED,
        (true, false) => UNAUTHORIZED,
        (true, true) => LINK_EXPIRED_UNAUTHORIZED,
    };
    let challenges = challenges.into_iter().filter(|(helps, _)| *helps);
    challenges.fold(TextResponse::new(error), |text, (_, challenge)| {
        text.with_field("WWW-Authenticate", challenge.as_bytes())
    })
}

const UNAUTHORIZED: HttpError =
    HttpError::new(Status::Unauthorized, "a password or a token is required");
const FORBIDDEN: HttpError = HttpError::new(Status::Forbidden, "access is denied");
const LINK_EXPIRED: HttpError = HttpError::new(
    Status::Forbidden,
    "this link has expired; ask whoever sent it for a new one",
);
const LINK_EXPIRED_UNAUTHORIZED: HttpError = HttpError::new(
    Status::Unauthorized,
    "this link has expired; ask whoever sent it for a new one, or log in",
);
const TOO_MANY_LOGINS: HttpError = HttpError::new(
    Status::TooManyRequests,
    "too many wrong passwords, or too many that wait to be verified; try again later",
);
