//! What every resource of a module has: its id, and what is said about going back.

use crate::document::read::At;
use crate::document::texts::Line;
use crate::ident::ResourceId;

/// What every resource has.
pub trait Common {
    /// Its name in the module.
    fn id(&self) -> &At<ResourceId>;
    /// Why it cannot be undone, where somebody says so (HR-5).
    fn not_reversible(&self) -> Option<&At<Line>>;
    /// Whether a roll-back leaves it as it is (DL-7); none where the kind's own rule holds.
    fn forward_only(&self) -> Option<&At<bool>>;
}

/// Declares the table of a kind with what every resource has.
macro_rules! resource {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident $(refuses $refused:expr)? ;
        $($keys:tt)*
    ) => {
        $crate::document::read::table! {
            $(#[doc = $doc])+
            pub struct $name $(refuses $refused)?;
            /// Its name in the module.
            "id" id: $crate::document::read::At<$crate::ident::ResourceId>,
            /// Why it cannot be undone: named in previews and reports.
            "not_reversible" not_reversible: Option<$crate::document::read::At<$crate::document::texts::Line>>,
            /// A roll-back leaves it as it is; where it is left out, removals of users and authorized keys only.
            "forward_only" forward_only: Option<$crate::document::read::At<bool>>,
            $($keys)*
        }
        impl $crate::document::module::resource_table::Common for $name {
            fn id(&self) -> &$crate::document::read::At<$crate::ident::ResourceId> {
                &self.id
            }
            fn not_reversible(&self) -> Option<&$crate::document::read::At<$crate::document::texts::Line>> {
                self.not_reversible.as_ref()
            }
            fn forward_only(&self) -> Option<&$crate::document::read::At<bool>> {
                self.forward_only.as_ref()
            }
        }
    };
}
pub(crate) use resource;
