//! Words of documents: an enum whose variants are written as one word each, declared once for readers, schemas and
//! the wire.

/// Declares an enum of words: how each is written in documents and on the wire.
macro_rules! words {
    (
        $(#[doc = $doc:literal])+
        pub enum $type:ident { $( $(#[doc = $word_doc:literal])+ $meaning:ident = $word:literal ),+ $(,)? }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $type {
            $( $(#[doc = $word_doc])+ #[serde(rename = $word)] $meaning, )+
        }
        impl $type {
            /// Every word with its meaning.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$meaning)),+];

            /// How it is written.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $( Self::$meaning => $word, )+
                }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
        impl $crate::document::read::Read for $type {
            fn read(
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                reader: &mut $crate::document::read::Reader<'_>,
            ) -> Option<Self> {
                reader.word(value, Self::WORDS)
            }
            fn written(&self) -> Option<serde_json::Value> {
                Some(self.word().into())
            }
        }
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "enum": [$($word),+] })
            }
        }
    };
}
pub(crate) use words;
