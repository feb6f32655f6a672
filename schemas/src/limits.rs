//! Every bound of the formats, in one place, so that no number is written twice.

/// The version of all formats that this build writes and the newest that it reads (FR-2).
pub const SCHEMA: u32 = 1;
/// The largest document of the fleet repo, in bytes (FR-3).
pub const DOCUMENT_BYTES: usize = 1024 * 1024;
/// The largest module folder unless fleet.toml raises it, in bytes (FR-3).
pub const BUNDLE_BYTES: u64 = 64 * 1024 * 1024;
/// The longest name of a node, role, module, resource or plan, in bytes (FR-4).
pub const NAME_BYTES: usize = 63;
/// Text above this many bytes is carried by digest (FR-8); until artifacts exist it is carried inline.
pub const INLINE_BYTES: usize = 4096;
/// Work that one template may do, in template instructions (FR-8).
pub const TEMPLATE_FUEL: u64 = 1_000_000;
/// Work that all templates of one tree may do, in template instructions (FR-8).
pub const TEMPLATE_TREE_FUEL: u64 = 1_000_000_000;
/// The largest output of one template, in bytes (FR-8).
pub const TEMPLATE_OUTPUT_BYTES: usize = 1024 * 1024;
/// The largest output of all templates of one tree, in bytes (FR-8).
pub const TEMPLATE_TREE_BYTES: usize = 256 * 1024 * 1024;
/// The most older epochs that an epoch names as still in force (SG-2).
pub const IN_FORCE: usize = 16;
/// The most uuids and keys that a head of the fleet list names as revoked (SG-3).
pub const REVOKED: usize = 256;
/// The largest jump of a number above the mark that is believed (SG-11).
pub const NUMBER_JUMP: u64 = 1_000_000;
/// How far ahead of a trusted clock an order may be issued, in seconds (SG-11).
pub const ISSUED_AHEAD_SECS: i64 = 86_400;
/// The largest envelope that is read at all, in bytes.
pub const ENVELOPE_BYTES: usize = 16 * 1024 * 1024;
/// The most signatures of an envelope; each is checked against each key.
pub const SIGNATURES: usize = 64;
/// The longest key id of a signature, in bytes.
pub const KEY_ID_BYTES: usize = 256;
/// The largest message inside a session, in bytes.
pub const MESSAGE_BYTES: usize = 24 * 1024 * 1024;
/// The largest piece of an artifact in one message, in bytes (HK-15).
pub const PIECE_BYTES: u32 = 256 * 1024;
/// The longest list of the files of a bundle, in bytes (HK-4).
pub const LIST_BYTES: u64 = 32 << 20;
/// The largest artifact, in bytes.
pub const ARTIFACT_BYTES: u64 = 4 << 30;
/// The most that an archive may unpack to, in bytes, and the most files and folders in a tree (HK-4).
pub const TREE_BYTES: u64 = 16 << 30;
/// See [`TREE_BYTES`].
pub const TREE_FILES: u64 = 200_000;
/// The longest frame that a host sends, in bytes: a reconciler holds one for each session whose host is speaking (LK-1).
pub const HOST_FRAME_BYTES: usize = 2000;
/// The largest message of a machine that only enrols, in bytes (LK-3).
pub const ENROLMENT_REQUEST_BYTES: usize = 16 * 1024;
/// A note is at most this long, in bytes (DL-10).
pub const NOTE_BYTES: usize = 64 * 1024;
/// The most output of a command that a report carries, in bytes (HR-11).
pub const COMMAND_OUTPUT_BYTES: usize = 8 * 1024;
/// The most reports that wait on a node's disk; above it the oldest heartbeats go first.
pub const REPORT_QUEUE: usize = 10_000;
/// The most bytes of reports that wait on a node's disk (HR-11).
pub const REPORT_QUEUE_BYTES: u64 = 64 * 1024 * 1024;
/// The largest webhook body, in bytes (FG-2).
pub const WEBHOOK_BYTES: usize = 25 * 1024 * 1024;
