//! How free text stands in one line: what would end the line or hide it is written as an escape.

/// Characters that a reader would not see, or that would turn the line around for him (Unicode TR 36, bidi controls).
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn push(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if hides(c) => push_hex(out, c),
        c => out.push(c),
    }
}

fn push_hex(out: &mut String, c: char) {
    out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
}

/// Free text to the end of a line. A space at the end is escaped: git's own tools would strip it.
pub(super) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let body = raw.trim_end_matches(' ');
    body.chars().for_each(|c| push(&mut out, c));
    (body.len()..raw.len()).for_each(|_| push_hex(&mut out, ' '));
    out
}

/// An actor: it ends at the first colon with a space, so none may stand in it.
pub(super) fn actor(raw: &str) -> String {
    text(raw).replace(": ", ":\\u{20}")
}

/// Back. None when a backslash begins nothing that [`text`] writes.
pub(super) fn back(escaped: &str) -> Option<String> {
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((plain, tail)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = tail.chars();
        match chars.next()? {
            '\\' => out.push('\\'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let (hex, after) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                out.push(char::from_u32(u32::from_str_radix(hex, 16).ok()?)?);
                rest = after;
                continue;
            }
            _ => return None,
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    Some(out)
}
