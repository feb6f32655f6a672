//! A document of the fleet that is edited in place: what a person has written keeps its comments, its order, its blanks,
//! its line ends and its byte-order mark, and only the lines that had to change are others (FR-10).

use anyhow::Context as _;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value};

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Edits the text of the document at `path`.
///
/// # Errors
/// It is no TOML in UTF-8, or `change` finds it otherwise than documents are.
pub(super) fn edit(
    path: &str,
    bytes: &[u8],
    change: impl FnOnce(&mut DocumentMut) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let before = std::str::from_utf8(bytes).with_context(|| format!("{path} is not UTF-8"))?;
    let text = before.strip_prefix(BYTE_ORDER_MARK).unwrap_or(before);
    // The editor ends lines in its own way; what it has is put back on the lines that stay.
    let plain = text.replace("\r\n", "\n");
    let mut document: DocumentMut = plain.parse().with_context(|| format!("{path} is no TOML"))?;
    change(&mut document)?;
    let edited = with_line_ends(text, &document.to_string());
    let mark = if text.len() < before.len() {
        BYTE_ORDER_MARK.to_string()
    } else {
        String::new()
    };
    Ok(mark + &edited)
}

/// The edited text with the line ends of the one before it: each line that stayed has its own, the others the first
/// line's.
fn with_line_ends(before: &str, edited: &str) -> String {
    if !before.contains("\r\n") {
        return edited.to_owned();
    }
    let usual = match before.split_inclusive('\n').next() {
        Some(first) if first.ends_with("\r\n") => "\r\n",
        _ => "\n",
    };
    let mut left = before.split_inclusive('\n');
    let mut out = String::new();
    for line in edited.split_inclusive('\n') {
        let Some(words) = line.strip_suffix('\n') else {
            out.push_str(line);
            continue;
        };
        let mut ahead = left.clone();
        let same = ahead.find(|old| {
            old.strip_suffix('\n')
                .map(|old| old.strip_suffix('\r').unwrap_or(old))
                == Some(words)
        });
        match same {
            Some(old) => {
                out.push_str(old);
                left = ahead;
            }
            None => {
                out.push_str(words);
                out.push_str(usual);
            }
        }
    }
    out
}

/// Adds an element to the end of an array. In an array over several lines it gets a line of its own, below the comments
/// that are there.
pub(super) fn push(array: &mut Array, element: impl Into<Value>) {
    let mut element: Value = element.into();
    let text =
        |raw: Option<&toml_edit::RawString>| raw.and_then(|raw| raw.as_str()).unwrap_or_default().to_owned();
    let comma = array.trailing_comma() || array.is_empty();
    let behind = match array.iter().last() {
        Some(last) if !comma => text(last.decor().suffix()),
        _ => text(Some(array.trailing())),
    };
    let Some((above, closing)) = behind.rsplit_once('\n') else {
        array.push(element);
        return;
    };
    let first = array.iter().next().map(|first| text(first.decor().prefix()));
    let indent = match first.as_deref().unwrap_or(above).rsplit_once('\n') {
        Some((_, indent)) => indent.chars().take_while(|c| c.is_whitespace()).collect(),
        None => "  ".to_owned(),
    };
    if let Some(last) = array.iter_mut().last().filter(|_| !comma) {
        last.decor_mut().set_suffix("");
    }
    element.decor_mut().set_prefix(format!("{above}\n{indent}"));
    array.push_formatted(element);
    array.set_trailing(format!("\n{closing}"));
    array.set_trailing_comma(true);
}

/// Adds a table below `[[name]]` at the very end of the document, whatever comments stand there.
///
/// # Errors
/// The document has something else by that name.
pub(super) fn append(document: &mut DocumentMut, name: &str, mut table: Table) -> anyhow::Result<()> {
    if let Some(Item::Value(Value::Array(array))) = document.get_mut(name) {
        push(array, table.into_inline_table());
        return Ok(());
    }
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    let blank = if trailing.is_empty() || trailing.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    table.decor_mut().set_prefix(format!("{trailing}{blank}"));
    match document
        .entry(name)
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()))
    {
        Item::ArrayOfTables(tables) => tables.push(table),
        _ => anyhow::bail!("`{name}` is no array of tables"),
    }
    document.set_trailing("");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(text: &str) -> String {
        edit("x.toml", text.as_bytes(), |document| {
            push(document["a"].as_array_mut().context("an array")?, "new");
            Ok(())
        })
        .unwrap()
    }

    // holds: FR-10
    #[test]
    fn an_element_that_is_added_moves_no_comment_and_no_other_line() {
        for (before, after) in [
            ("a = []\n", "a = [\"new\"]\n"),
            ("a = [ \"x\" ] # why\n", "a = [ \"x\" , \"new\"] # why\n"),
            ("a = [\"x\",]\n", "a = [\"x\", \"new\",]\n"),
            ("a = [\n  # none yet\n]\n", "a = [\n  # none yet\n  \"new\",\n]\n"),
            (
                "a = [\n\t\"x\", # one\n\t\"y\", # two\n]\n",
                "a = [\n\t\"x\", # one\n\t\"y\", # two\n\t\"new\",\n]\n",
            ),
            (
                "a = [\n  \"x\" # one\n  ]\n",
                "a = [\n  \"x\", # one\n  \"new\",\n  ]\n",
            ),
            ("a = [ \"x\",\n  \"y\" ]\n", "a = [ \"x\",\n  \"y\" , \"new\"]\n"),
            (
                "\u{feff}a = [\r\n  \"x\",\r\n]\r\nb = 1\nc = 2\r\n",
                "\u{feff}a = [\r\n  \"x\",\r\n  \"new\",\r\n]\r\nb = 1\nc = 2\r\n",
            ),
        ] {
            assert_eq!(pushed(before), after);
        }
    }

    // holds: FR-10
    #[test]
    fn a_table_that_is_added_comes_last_whatever_stands_there() {
        let appended = |text: &str| {
            edit("x.toml", text.as_bytes(), |document| {
                let mut table = Table::new();
                table["id"] = toml_edit::value("new");
                append(document, "t", table)
            })
        };
        for before in [
            "",
            "# of this file",
            "#:schema x.json\n# of this file\n",
            "[[t]]\nid = 1\n",
            "# a\n[[t]] # b\n  z = 1\n\na   = 2 # c\n# at the end\n",
            "[[t]]\nid = 1",
            "\u{feff}# a\r\n[[t]]\r\nid = 1\r\n",
        ] {
            let after = appended(before).unwrap();
            let end = if before.contains('\r') { "\r\n" } else { "\n" };
            let gap = if before.is_empty() || before.ends_with('\n') {
                end.to_owned()
            } else {
                end.repeat(2)
            };
            assert_eq!(after, format!("{before}{gap}[[t]]{end}id = \"new\"{end}"));
        }
        assert_eq!(
            appended("t = [\n  { id = \"a\" }, # b\n]\n").unwrap(),
            "t = [\n  { id = \"a\" }, # b\n  { id = \"new\" },\n]\n"
        );
        assert!(appended("t = 1\n").is_err());
        assert!(appended("t = \n").is_err());
    }
}
