//! Responses, as clients read them: the head, and the framing of the body.

pub mod framing;
pub mod head;
