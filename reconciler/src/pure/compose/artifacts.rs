//! What the archives and bundles of a module are made of: bytes that travel beside declarations, by their digests (HK-4,
//! HK-15).
//!
//! Stands alone because it is made once for a module, however many nodes have it. Invariant: every artifact that a
//! content of the module names is among [`Artifacts::bytes`], but what is named by its digest alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::artifact::{FileList, Listed};
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::document::module::{ArchiveResource, BundleResource, BundleSource};
use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::bundles::{Archive, Bundle};

use crate::pure::source_tree::COMPONENT_FILES;
use crate::pure::validate::{Module, packing};

/// The artifacts of a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// By digest.
    pub bytes: BTreeMap<Digest, Arc<[u8]>>,
    /// What each archive and bundle is: the digest and the length of its archive, or of its list of files.
    of_resource: BTreeMap<ResourceId, (Digest, u64)>,
}

impl Artifacts {
    /// Those of a module's folder.
    pub(super) fn of(module: &Module) -> Self {
        let mut artifacts = Self::default();
        for archive in &module.file.archives {
            let source = archive.source.as_ref();
            if let Some(bytes) = source.and_then(|at| module.files.get(&at.value.0)) {
                artifacts.add(&archive.id.value, Arc::clone(bytes));
            }
        }
        for bundle in &module.file.bundles {
            let inside = match &bundle.source.value {
                BundleSource::Folder(folder) => format!("{}/", folder.0),
                BundleSource::Component => COMPONENT_FILES.to_owned(),
            };
            let mut list = FileList::default();
            for (path, bytes) in &module.files {
                let Some(name) = path.strip_prefix(&inside) else {
                    continue;
                };
                let listed = Listed {
                    sha256: Digest::of(bytes),
                    size_bytes: bytes.len() as u64,
                    executable: module.programs.contains(path),
                };
                artifacts.bytes.insert(listed.sha256, Arc::clone(bytes));
                list.files.insert(name.to_owned(), listed);
            }
            // A list of texts and numbers can always be written.
            if let Ok(bytes) = canonical(&list) {
                artifacts.add(&bundle.id.value, Arc::from(bytes));
            }
        }
        artifacts
    }

    fn add(&mut self, id: &ResourceId, bytes: Arc<[u8]>) {
        let digest = Digest::of(&bytes);
        self.of_resource.insert(id.clone(), (digest, bytes.len() as u64));
        self.bytes.insert(digest, bytes);
    }

    /// What a process is built of whose program is in this archive or bundle.
    pub(super) fn build(&self, id: &ResourceId) -> Option<Digest> {
        self.of_resource.get(id).map(|(digest, _)| *digest)
    }

    /// The archive as a node gets it; none where nothing is known of what it is made of.
    pub(super) fn archive(&self, r: &ArchiveResource) -> Option<Archive> {
        let (sha256, size_bytes) = *self.of_resource.get(&r.id.value)?;
        Some(Archive {
            path: r.path.value.0.clone(),
            sha256,
            size_bytes,
            packing: packing(r)?,
            strip: r.strip.0,
            allow_setuid: r.allow_setuid,
            owner: r.owner.as_ref().map(|o| o.0.clone()),
            group: r.group.as_ref().map(|g| g.0.clone()),
            restarts: super::kinds::values(&r.restarts),
        })
    }

    /// The bundle as a node gets it; none where nothing is known of what it is made of.
    pub(super) fn bundle(&self, r: &BundleResource) -> Option<Bundle> {
        let (tree, list_bytes) = *self.of_resource.get(&r.id.value)?;
        Some(Bundle {
            path: r.path.value.0.clone(),
            tree,
            list_bytes,
            owner: r.owner.as_ref().map(|o| o.0.clone()),
            group: r.group.as_ref().map(|g| g.0.clone()),
            restarts: super::kinds::values(&r.restarts),
        })
    }
}
