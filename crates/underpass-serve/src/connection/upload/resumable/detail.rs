//! Names in [`underpass_receive::UploadRecord::details`].

/// The path of the request that created the upload.
pub(super) const PATH: &str = "path";
/// The protocol: `tus` or `ietf`.
pub(super) const PROTOCOL: &str = "protocol";
/// The value of `Upload-Metadata`.
pub(super) const METADATA: &str = "metadata";
/// The value of `Repr-Digest` of the creation.
pub(super) const DIGEST: &str = "repr-digest";
/// The offset from which bytes have not been compared with their checksum.
pub(super) const UNVERIFIED: &str = "unverified";
