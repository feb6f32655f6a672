//! Whether a file is encrypted with age (FR-9): a secret that was committed in clear is found before it is merged.

use meshplan_schemas::finding::Finding;

use crate::pure::source_tree::shown_path;

/// What a binary age file begins with (age-encryption.org/v1, "Header").
const BINARY: &[u8] = b"age-encryption.org/v1\n";
/// What an armored one begins with.
const ARMORED: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";

/// Why the file is no secret; none when it is one. Its content is never shown.
pub(super) fn finding(path: &str, bytes: &[u8]) -> Option<Finding> {
    let sealed = bytes.starts_with(BINARY) || bytes.starts_with(ARMORED);
    (!sealed).then(|| {
        Finding::of_file(&shown_path(path.as_bytes()), "this file is not encrypted with age").help(
            "encrypt it to `[secrets] recipient` of fleet.toml (`age -r age1...`); what was committed in clear is known \
             to whoever reads the repository, so use another value",
        )
    })
}
