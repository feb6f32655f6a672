//! `[[archive]]`, `[[bundle]]` (HK-4).

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::Spanned;
use toml::de::DeValue;

use super::resource_table::resource;
use crate::document::read::{At, Read, Reader};
use crate::document::scalar::{Int, Owner, SourcePath, TargetPath};
use crate::document::texts::Sha256;
use crate::ident::ResourceId;
use crate::resource::bundles::Packing;

resource! {
    /// An archive that is unpacked into a folder of its own; exactly one of `source`, `sha256`.
    pub struct ArchiveResource;
    /// Absolute path of the folder on the node.
    "path" path: At<TargetPath>,
    /// A file of the module's folder.
    "source" source: Option<At<SourcePath>>,
    /// The archive's digest in the artifact store.
    "sha256" sha256: Option<At<Sha256>>,
    /// How it is packed; by the end of `source` where it is left out.
    "packing" packing: Option<At<Packing>>,
    /// How many leading components of the names in it are dropped.
    "strip" strip: Int<0, 64> = Int(0),
    /// Keeps setuid and setgid bits, which are refused otherwise.
    "allow_setuid" allow_setuid: bool = false,
    /// User name or number.
    "owner" owner: Option<Owner>,
    /// Group name or number.
    "group" group: Option<Owner>,
    /// Resources of the module that are restarted when it changes.
    "restarts" restarts: Vec<At<ResourceId>>,
}

resource! {
    /// A folder that is put in place whole.
    pub struct BundleResource;
    /// Absolute path of the folder on the node.
    "path" path: At<TargetPath>,
    /// A folder of the module's folder, or `component`: what the component whose `module` is this one delivers.
    "source" source: At<BundleSource>,
    /// User name or number.
    "owner" owner: Option<Owner>,
    /// Group name or number.
    "group" group: Option<Owner>,
    /// Resources of the module that are restarted when it changes.
    "restarts" restarts: Vec<At<ResourceId>>,
}

/// Where a bundle comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleSource {
    /// `component`.
    Component,
    /// A folder of the module's folder.
    Folder(SourcePath),
}
impl Read for BundleSource {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().as_str() == Some("component") {
            return Some(Self::Component);
        }
        SourcePath::read(value, reader).map(Self::Folder)
    }
}
impl JsonSchema for BundleSource {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BundleSource".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let folder = generator.subschema_for::<SourcePath>();
        json_schema!({ "anyOf": [{ "const": "component" }, folder] })
    }
}
