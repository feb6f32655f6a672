//! Requests to a forge's API, as values: what is asked, how a list goes on, and how a forge wants to be asked.

use std::time::Duration;

use serde_json::Value;

/// How a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Makes.
    Post,
    /// Changes, in part.
    Patch,
    /// Changes, as a whole.
    Put,
}

/// A request to a forge's API.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// How.
    pub method: Method,
    /// The path below the API's address, encoded; of a list with the query of its first page.
    pub path: String,
    /// What is sent, as JSON.
    pub body: Option<Value>,
}

impl Call {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::Get,
            path,
            body: None,
        }
    }

    pub(super) fn send(method: Method, path: String, body: Value) -> Self {
        Self {
            method,
            path,
            body: Some(body),
        }
    }

    fn query(&self, name: &str) -> Option<usize> {
        let (_, query) = self.path.split_once('?')?;
        let of = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| value.parse().ok())?
        };
        query.split('&').find_map(of)
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// How much is on it, also of what is not wanted or cannot be read.
    pub count: usize,
    /// How much of that cannot be read.
    pub unread: usize,
    /// How much there is in all, where the page says so.
    pub total: Option<usize>,
    /// What is on it.
    pub items: Vec<T>,
}

impl<T> Page<T> {
    pub(super) fn of(items: Vec<T>) -> Self {
        Self {
            count: items.len(),
            unread: 0,
            total: None,
            items,
        }
    }
}

/// What was read of a list so far.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a> {
    /// The `Link` header of the page that was read last.
    pub link: Option<&'a str>,
    /// How much there is in all, as a header or the page says.
    pub total: Option<usize>,
    /// How much was read of all pages.
    pub read: usize,
    /// How much of the last one.
    pub page: usize,
}

/// The call for the page after the one that `call` was for; none where that was the last.
///
/// Of a `Link` only the query is taken: where the API is, we know ourselves, whatever a proxy makes of its name.
#[must_use]
pub fn next(call: &Call, read: &Read<'_>) -> Option<Call> {
    if read.page == 0 {
        return None;
    }
    let (path, query) = call.path.split_once('?')?;
    let to = |query: &str| Some(Call::get(format!("{path}?{query}")));
    if let Some(link) = read.link {
        let is_next = |part: &&str| part.split(';').skip(1).any(|word| word.trim() == "rel=\"next\"");
        let part = link.split(',').find(is_next)?;
        let address = part.split(';').next()?.trim();
        let address = address.strip_prefix('<')?.strip_suffix('>')?;
        let (_, query) = address.split_once('?')?;
        return to(query.split('#').next().unwrap_or_default());
    }
    let limit = call.query("limit").or_else(|| call.query("per_page"));
    let more = match (read.total, limit) {
        (Some(total), _) => read.read < total,
        (None, Some(limit)) => read.page >= limit,
        (None, None) => false,
    };
    let page = call.query("page")?;
    let (was, will) = (format!("page={page}"), format!("page={}", page + 1));
    let changed: Vec<&str> = query
        .split('&')
        .map(|pair| if pair == was { will.as_str() } else { pair })
        .collect();
    if more { to(&changed.join("&")) } else { None }
}

/// How a forge wants to be asked, and by what it says that it has had enough.
#[derive(Debug)]
pub struct Manners {
    /// The word before the token in `Authorization`.
    pub authorization: &'static str,
    /// Headers of each request.
    pub headers: &'static [(&'static str, &'static str)],
    /// The headers that say how many requests are left, and when there are new ones (seconds since 1970).
    pub left: Option<(&'static str, &'static str)>,
    /// Words of a refusal (403) that mean "too fast".
    pub too_fast: &'static [&'static str],
    /// Numbers and words of a refusal that mean that it stands there already.
    pub there: &'static [(u16, &'static str)],
    /// At least so long between two requests that write.
    pub write_gap: Duration,
    /// At least so many seconds between two edits of a comment (DL-11).
    pub edit_gap_secs: u32,
    /// At least so long between two pushes of notes (DL-10).
    pub push_gap: Duration,
    /// Where the API is below a host, and hosts whose API is elsewhere.
    pub api: (&'static str, &'static [(&'static str, &'static str)]),
}

/// A segment of a path, encoded.
pub(super) fn encoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    // A segment of dots alone would be read as a way through folders.
    if !out.is_empty() && out.bytes().all(|b| b == b'.') {
        return out.replace('.', "%2E");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_on(link: Option<&str>, total: Option<usize>, read: usize, page: usize) -> Option<String> {
        let call = Call::get("repos/a/b/pulls?state=open&page=1&limit=50".to_owned());
        let read = Read {
            link,
            total,
            read,
            page,
        };
        next(&call, &read).map(|call| call.path)
    }

    // holds: FG-4
    #[test]
    fn a_list_goes_on_as_long_as_the_forge_says() {
        let next =
            r#"<https://f/api/v1/x?page=2&limit=50>; rel="next", <https://f/api/v1/x?page=9>; rel="last""#;
        let second = Some("repos/a/b/pulls?state=open&page=2&limit=50".to_owned());
        assert_eq!(
            goes_on(Some(next), Some(3), 50, 50),
            Some("repos/a/b/pulls?page=2&limit=50".to_owned())
        );
        assert_eq!(
            goes_on(Some(r#"<https://f/x?page=1>; rel="first""#), Some(900), 50, 50),
            None
        );
        assert_eq!(goes_on(None, Some(31), 30, 30), second);
        assert_eq!(goes_on(None, Some(30), 30, 30), None);
        assert_eq!(goes_on(None, None, 50, 50), second);
        assert_eq!(goes_on(None, None, 12, 12), None);
        assert_eq!(
            goes_on(Some(next), Some(100), 50, 0),
            None,
            "an empty page ends every list"
        );
        assert_eq!(
            goes_on(Some(r#"<https://evil.test/?cursor=x>; rel="next""#), None, 50, 50),
            Some("repos/a/b/pulls?cursor=x".to_owned()),
            "of another host only the query is taken"
        );
        let one = Call::get("user".to_owned());
        let read = Read {
            link: Some(next),
            total: None,
            read: 1,
            page: 1,
        };
        assert!(super::next(&one, &read).is_none(), "what is no list has one page");
    }

    // holds: B54
    #[test]
    fn a_segment_is_one_segment() {
        assert_eq!(encoded("a/b#c"), "a%2Fb%23c");
        assert_eq!(encoded(".."), "%2E%2E");
        assert_eq!(encoded("a.b"), "a.b");
    }
}
