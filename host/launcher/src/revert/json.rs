//! Reads JSON, as much of it as the host's own files have: whole numbers, no deeper than a journal is.
//!
//! It stands alone because the launcher depends on nothing that others can change. What it does not know it refuses.

use std::path::Path;

/// Deeper than this no file of the host's goes.
const DEPTH: usize = 32;
/// Larger than this no file that is read here gets.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Value>),
    /// In the order of the text.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// A field of an object.
    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(fields) => fields.iter().find(|(n, _)| n == name).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Value]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

/// Reads a file.
pub(crate) fn read_file(path: &Path) -> Result<Value, String> {
    let fault = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let size = std::fs::metadata(path).map_err(fault)?.len();
    if size > MOST_BYTES {
        return Err(format!(
            "{} has {size} bytes, more than it can have",
            path.display()
        ));
    }
    let text = std::fs::read_to_string(path).map_err(fault)?;
    parse(&text).map_err(|e| format!("{} is not what the host writes: {e}", path.display()))
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    reader.space();
    if reader.rest.is_empty() {
        Ok(value)
    } else {
        Err(reader.unexpected())
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn unexpected(&self) -> String {
        let next: String = self.rest.chars().take(20).collect();
        format!("unexpected {next:?}")
    }

    fn next(&mut self) -> Result<char, String> {
        let mut chars = self.rest.chars();
        let next = chars.next().ok_or("it ends too early")?;
        self.rest = chars.as_str();
        Ok(next)
    }

    /// Whether these words come next; then they are behind.
    fn took(&mut self, words: &str) -> bool {
        let rest = self.rest.strip_prefix(words);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn need(&mut self, words: &str) -> Result<(), String> {
        if self.took(words) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH {
            return Err("it is deeper than it can be".to_owned());
        }
        self.space();
        for (word, value) in [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ] {
            if self.took(word) {
                return Ok(value);
            }
        }
        match self.rest.chars().next() {
            Some('"') => Ok(Value::Text(self.string()?)),
            Some('[') => self.list(depth),
            Some('{') => self.object(depth),
            Some(_) => self.number(),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut list = Vec::new();
        self.need("[")?;
        self.space();
        if self.took("]") {
            return Ok(Value::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            self.space();
            if self.took("]") {
                return Ok(Value::List(list));
            }
            self.need(",")?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        let mut fields = Vec::new();
        self.need("{")?;
        self.space();
        if self.took("}") {
            return Ok(Value::Object(fields));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.need(":")?;
            fields.push((name, self.value(depth + 1)?));
            self.space();
            if self.took("}") {
                return Ok(Value::Object(fields));
            }
            self.need(",")?;
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '-');
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if rest.starts_with(['.', 'e', 'E']) {
            return Err("a number that is not whole".to_owned());
        }
        let number = digits.parse().map_err(|_| self.unexpected())?;
        self.rest = rest;
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, String> {
        self.need("\"")?;
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                c if c < ' ' => return Err("a control character in a text".to_owned()),
                c => text.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        Ok(match self.next()? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let high = self.four()?;
                if !(0xD800..0xDC00).contains(&high) {
                    return char::from_u32(high).ok_or_else(|| "half a character".to_owned());
                }
                self.need("\\u")?;
                let low = self.four()?;
                if !(0xDC00..0xE000).contains(&low) {
                    return Err("half a character".to_owned());
                }
                let whole = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                char::from_u32(whole).ok_or("no character")?
            }
            other => return Err(format!("unknown escape {other:?}")),
        })
    }

    fn four(&mut self) -> Result<u32, String> {
        let mut number = 0;
        for _ in 0..4 {
            let digit = self.next()?.to_digit(16).ok_or("not four hexadecimal digits")?;
            number = number * 16 + digit;
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_writes_is_read() {
        let text = r#" {"a": [1, -2, true, false, null], "b": {"c\n\"\\\/\u00e9\ud83d\ude00": "ü"}, "d": [], "e": {}} "#;
        let value = parse(text).unwrap();
        let list = value.field("a").and_then(Value::list).unwrap();
        assert_eq!(list.first().and_then(Value::number), Some(1));
        assert_eq!(list.get(1).and_then(Value::number), Some(-2));
        let inner = value.field("b").unwrap();
        assert_eq!(inner.field("c\n\"\\/é😀").and_then(Value::text), Some("ü"));
        assert_eq!(value.field("d").and_then(Value::list), Some(&[][..]));
    }

    #[test]
    fn anything_else_is_refused_and_never_read_as_something_else() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "{",
            "[1",
            "[1,]",
            "{\"a\" 1}",
            "{a: 1}",
            "1.5",
            "1e3",
            "-",
            "1-1",
            "tru",
            "\"a",
            "\"\\x\"",
            "\"\n\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\u00g0\"",
            "[] []",
            "99999999999999999999",
            &deep,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
