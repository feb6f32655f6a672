//! All resources of a module as one list, whatever their kind.

use super::resource_table::Common;
use super::{
    ActionResource, ArchiveResource, BundleResource, ContainerResource, DirectoryResource, FileResource,
    FilterResource, GroupResource, KernelModuleResource, LinkResource, ModuleFile, NetworkResource,
    PackageResource, PrivateNetworkResource, ProbeResource, ProcessResource, RebootResource, ServiceResource,
    SysctlResource, UpgradeResource, UserResource, VolumeResource,
};

/// Declares the kinds: each with its word, its list in [`ModuleFile`] and its table.
macro_rules! entries {
    ($( $kind:ident = $word:literal in $list:ident of $table:ident ),+ $(,)?) => {
        /// A resource of a module.
        #[derive(Debug, Clone, Copy)]
        #[expect(missing_docs, reason = "the kinds, by their names")]
        pub enum Entry<'d> {
            $( $kind(&'d $table), )+
        }

        impl<'d> Entry<'d> {
            /// The words of all kinds.
            pub const KINDS: &'static [&'static str] = &[$($word),+];

            /// The word of its kind.
            #[must_use]
            pub fn kind(self) -> &'static str {
                match self {
                    $( Self::$kind(_) => $word, )+
                }
            }
            /// What every resource has.
            #[must_use]
            pub fn common(self) -> &'d dyn Common {
                match self {
                    $( Self::$kind(table) => table, )+
                }
            }
        }

        impl ModuleFile {
            /// Every resource, in the order in which they stand in the document.
            #[must_use]
            pub fn entries(&self) -> Vec<Entry<'_>> {
                let mut entries: Vec<Entry<'_>> = Vec::new();
                $( entries.extend(self.$list.iter().map(Entry::$kind)); )+
                entries.sort_by_key(|entry| entry.common().id().span.start);
                entries
            }
        }
    };
}
entries! {
    File = "file" in files of FileResource,
    Directory = "directory" in directories of DirectoryResource,
    Link = "link" in links of LinkResource,
    Probe = "probe" in probes of ProbeResource,
    User = "user" in users of UserResource,
    Group = "group" in groups of GroupResource,
    Package = "package" in packages of PackageResource,
    Archive = "archive" in archives of ArchiveResource,
    Bundle = "bundle" in bundles of BundleResource,
    Service = "service" in services of ServiceResource,
    Process = "process" in processes of ProcessResource,
    Container = "container" in containers of ContainerResource,
    Network = "network" in networks of NetworkResource,
    Volume = "volume" in volumes of VolumeResource,
    Filter = "filter" in filters of FilterResource,
    PrivateNetwork = "private_network" in private_networks of PrivateNetworkResource,
    Sysctl = "sysctl" in sysctls of SysctlResource,
    KernelModule = "kernel-module" in kernel_modules of KernelModuleResource,
    Action = "action" in actions of ActionResource,
    Upgrade = "upgrade" in upgrades of UpgradeResource,
    Reboot = "reboot" in reboots of RebootResource,
}
