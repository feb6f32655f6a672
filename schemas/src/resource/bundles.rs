//! Archives and bundles on the wire (HK-4): trees that are unpacked whole, by digest.

use super::wire_table::wire;
use crate::digest::Digest;
use crate::document::words::words;
use crate::ident::ResourceId;

words! {
    /// How an archive is packed.
    pub enum Packing {
        /// Plain tar.
        Tar = "tar",
        /// tar and gzip.
        TarGz = "tar.gz",
        /// tar and zstd.
        TarZst = "tar.zst",
        /// zip.
        Zip = "zip",
    }
}

wire! {
    /// An archive that is unpacked into a folder of its own (HK-4).
    pub struct Archive;
    /// Absolute path of the folder.
    path: String,
    /// The archive's SHA-256.
    sha256: Digest,
    /// Its length.
    size_bytes: u64,
    /// How it is packed.
    packing: Packing;
    maybe
    /// How many leading components of its names are dropped.
    strip: u32,
    /// Whether setuid and setgid bits are kept.
    allow_setuid: bool,
    /// User name or number.
    owner: Option<String>,
    /// Group name or number.
    group: Option<String>,
    /// Resources of the module that are restarted when it changes.
    restarts: Vec<ResourceId>,
}

wire! {
    /// A folder of the module that is put in place whole (HK-4).
    pub struct Bundle;
    /// Absolute path of the folder.
    path: String,
    /// The digest of its list of files ([`crate::artifact::FileList`]), which is an artifact.
    tree: Digest,
    /// The length of that list.
    list_bytes: u64;
    maybe
    /// User name or number.
    owner: Option<String>,
    /// Group name or number.
    group: Option<String>,
    /// Resources of the module that are restarted when it changes.
    restarts: Vec<ResourceId>,
}
