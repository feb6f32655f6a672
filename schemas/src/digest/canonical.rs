//! Writes a value's canonical bytes as it says them: a map is put in order where it did not come in order, and no tree
//! of values is built to be thrown away. Every node's record and content goes through here.
//!
//! Invariant: the bytes are those that `serde_json` writes of the value as a `serde_json::Value` whose maps are sorted.

use std::borrow::Cow;

use serde::ser::{self, Error as _, Serialize};
use serde_json::{Error, Value};

/// The canonical bytes of a value.
pub(super) fn bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(512);
    value.serialize(Writer { out: &mut out })?;
    Ok(out)
}

/// Writes one value.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// What has nothing inside is written as `serde_json` writes it.
    fn plain<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        serde_json::to_writer(self.out, value)
    }

    fn elements(self, close: &'static [u8]) -> Elements<'o> {
        self.out.push(b'[');
        let first = self.out.len();
        Elements {
            out: self.out,
            first,
            close,
        }
    }

    fn entries(self, close: &'static [u8]) -> Entries<'o> {
        let start = self.out.len();
        Entries {
            out: self.out,
            start,
            written: Vec::with_capacity(16),
            sorted: true,
            close,
        }
    }

    /// The `{"name":` around the content of an enum's variant.
    fn variant(self, name: &str) -> Result<Self, Error> {
        self.out.push(b'{');
        serde_json::to_writer(&mut *self.out, name)?;
        self.out.push(b':');
        Ok(self)
    }
}

/// Writes an array.
struct Elements<'o> {
    out: &'o mut Vec<u8>,
    /// Where the first element begins.
    first: usize,
    close: &'static [u8],
}

impl Elements<'_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if self.out.len() > self.first {
            self.out.push(b',');
        }
        value.serialize(Writer { out: self.out })
    }

    fn finish(self) {
        self.out.extend_from_slice(self.close);
    }
}

/// Writes a map: each entry as `,"key":value`, in the order in which they come; at the end they are put in order.
struct Entries<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// The keys with where their entries begin.
    written: Vec<(Cow<'static, str>, usize)>,
    sorted: bool,
    close: &'static [u8],
}

impl Entries<'_> {
    fn key(&mut self, key: Cow<'static, str>) -> Result<(), Error> {
        self.sorted &= self.written.last().is_none_or(|(last, _)| *last < key);
        let start = self.out.len();
        self.out.push(b',');
        serde_json::to_writer(&mut *self.out, &*key)?;
        self.out.push(b':');
        self.written.push((key, start));
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(Writer { out: self.out })
    }

    fn finish(mut self) {
        if !self.sorted {
            self.sort();
        }
        match self.out.get_mut(self.start) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.extend_from_slice(self.close);
    }

    /// Puts the entries in order; of two with one key the last stays.
    fn sort(&mut self) {
        let unsorted = self.out.split_off(self.start);
        let ends = self.written.iter().skip(1).map(|(_, start)| *start);
        let ends = ends.chain([self.start + unsorted.len()]);
        let mut entries: Vec<(&str, &[u8])> = (self.written.iter().zip(ends))
            .map(|((key, start), end)| {
                let entry = unsorted.get(start - self.start..end - self.start);
                (&**key, entry.unwrap_or_default())
            })
            .collect();
        entries.sort_by_key(|(key, _)| *key);
        for (at, (key, entry)) in entries.iter().enumerate() {
            if entries.get(at + 1).is_none_or(|(next, _)| next != key) {
                self.out.extend_from_slice(entry);
            }
        }
    }
}

impl<'o> ser::Serializer for Writer<'o> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Elements<'o>;
    type SerializeTuple = Elements<'o>;
    type SerializeTupleStruct = Elements<'o>;
    type SerializeTupleVariant = Elements<'o>;
    type SerializeMap = Entries<'o>;
    type SerializeStruct = Entries<'o>;
    type SerializeStructVariant = Entries<'o>;

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_i8(self, value: i8) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_i16(self, value: i16) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_i32(self, value: i32) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_u8(self, value: u8) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_u16(self, value: u16) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_u32(self, value: u32) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.plain(&f64::from(value))
    }
    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.plain(&value)
    }
    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.plain(value)
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.plain(value)
    }
    fn serialize_none(self) -> Result<(), Error> {
        self.plain(&())
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), Error> {
        self.plain(&())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.plain(&())
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.plain(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let inside = self.variant(variant)?;
        value.serialize(Writer { out: inside.out })?;
        inside.out.push(b'}');
        Ok(())
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'o>, Error> {
        Ok(self.elements(b"]"))
    }
    fn serialize_tuple(self, _: usize) -> Result<Elements<'o>, Error> {
        Ok(self.elements(b"]"))
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Elements<'o>, Error> {
        Ok(self.elements(b"]"))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements<'o>, Error> {
        Ok(self.variant(variant)?.elements(b"]}"))
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'o>, Error> {
        Ok(self.entries(b"}"))
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'o>, Error> {
        Ok(self.entries(b"}"))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries<'o>, Error> {
        Ok(self.variant(variant)?.entries(b"}}"))
    }
}

/// An array, whatever serde calls it.
macro_rules! elements {
    ($($trait:ident :: $add:ident),+) => { $(
        impl ser::$trait for Elements<'_> {
            type Ok = ();
            type Error = Error;
            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.add(value)
            }
            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        }
    )+ };
}
elements!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// A map whose keys are known when the program is built.
macro_rules! fields {
    ($($trait:ident),+) => { $(
        impl ser::$trait for Entries<'_> {
            type Ok = ();
            type Error = Error;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
                self.key(Cow::Borrowed(key))?;
                self.value(value)
            }
            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        }
    )+ };
}
fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = Error;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        let key = match serde_json::to_value(key)? {
            Value::String(text) => text,
            key @ (Value::Number(_) | Value::Bool(_)) => key.to_string(),
            _ => return Err(Error::custom("key must be a string")),
        };
        self.key(Cow::Owned(key))
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.value(value)
    }
    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::Value;

    use super::bytes;

    /// The way over a tree of values.
    fn by_way_of_a_value<T: Serialize>(value: &T) -> String {
        serde_json::to_string(&serde_json::to_value(value).unwrap()).unwrap()
    }

    fn written<T: Serialize>(value: &T) -> String {
        String::from_utf8(bytes(value).unwrap()).unwrap()
    }

    #[derive(Clone, Debug, Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Zero,
        One(u8),
        Two(i64, String),
        Some { zebra: bool, ant: Option<Box<All>> },
    }

    #[derive(Clone, Debug, Serialize)]
    struct Flat {
        mule: u8,
        bee: Vec<Kind>,
    }

    #[derive(Clone, Debug, Serialize)]
    struct All {
        zebra: String,
        #[serde(flatten)]
        flat: Flat,
        ant: (u16, char),
        nothing: (),
        #[serde(skip_serializing_if = "Option::is_none")]
        seldom: Option<i8>,
        by_text: HashMap<String, Value>,
        by_number: BTreeMap<u32, Vec<u8>>,
        by_flag: BTreeMap<bool, i64>,
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[\"\\\\a-c\u{1}\u{e9}]{0,3}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn all(texts: &[String], numbers: &[i64], inside: Option<Box<All>>, values: Vec<Value>) -> All {
        let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
        let text = |at: usize| texts.get(at).cloned().unwrap_or_default();
        All {
            zebra: text(0),
            flat: Flat {
                mule: 7,
                bee: vec![
                    Kind::Zero,
                    Kind::One(3),
                    Kind::Two(number(0), text(1)),
                    Kind::Some {
                        zebra: number(1) > 0,
                        ant: inside,
                    },
                ],
            },
            ant: (9, text(2).chars().next().unwrap_or('"')),
            nothing: (),
            seldom: (number(2) > 0).then_some(-1),
            by_text: texts.iter().cloned().zip(values).collect(),
            // As text 10 stands before 9.
            by_number: BTreeMap::from([(9, vec![1, 2]), (10, vec![]), (100, vec![255])]),
            by_flag: BTreeMap::from([(false, number(3)), (true, number(4))]),
        }
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_a_sorted_tree_of_values(
            texts in prop::collection::vec("[\"\\\\a-z\u{1}\u{e9}]{0,4}", 0..5),
            numbers in prop::collection::vec(any::<i64>(), 0..5),
            values in prop::collection::vec(value(), 5),
        ) {
            let inner = all(&texts, &numbers, None, values.clone());
            let outer = all(&texts, &numbers, Some(Box::new(inner)), values);
            prop_assert_eq!(written(&outer), by_way_of_a_value(&outer));
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_an_error_and_of_two_alike_the_last_stays() {
        assert!(bytes(&BTreeMap::from([(vec![1], 2)])).is_err());
        #[derive(Serialize)]
        struct Twice {
            b: u8,
            #[serde(flatten)]
            more: BTreeMap<&'static str, u8>,
        }
        let twice = Twice {
            b: 1,
            more: BTreeMap::from([("a", 2), ("b", 3)]),
        };
        assert_eq!(written(&twice), r#"{"a":2,"b":3}"#);
        assert_eq!(written(&twice), by_way_of_a_value(&twice));
        assert_eq!(written(&BTreeMap::<String, u8>::new()), "{}");
    }
}
