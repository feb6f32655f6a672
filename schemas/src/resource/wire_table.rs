//! How the fields of a kind are declared for the wire: strict, and what says nothing is not written.

/// Whether a field says nothing, so that it is left out.
pub(super) fn says_nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares the fields of a kind; one after `maybe` may be left out.
macro_rules! wire {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident;
        maybe $( $(#[doc = $opt_doc:literal])+ $opt:ident : $opt_type:ty ),+ $(,)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $opt_doc])+
                #[serde(default, skip_serializing_if = "crate::resource::wire_table::says_nothing")]
                pub $opt: $opt_type,
            )+
        }

        impl $name {
            /// The keys that its fields are written under.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($opt)),+];
        }
    };
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident;
        $( $(#[doc = $key_doc:literal])+ $field:ident : $type:ty ),* $(,)?
        $( ; maybe $( $(#[doc = $opt_doc:literal])+ $opt:ident : $opt_type:ty ),+ $(,)? )?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $key_doc])+ pub $field: $type, )*
            $( $(
                $(#[doc = $opt_doc])+
                #[serde(default, skip_serializing_if = "crate::resource::wire_table::says_nothing")]
                pub $opt: $opt_type,
            )+ )?
        }

        impl $name {
            /// The keys that its fields are written under.
            pub const KEYS: &'static [&'static str] =
                &[$(stringify!($field),)* $($(stringify!($opt)),+)?];
        }
    };
}
pub(super) use wire;
