//! Reads the paths (`a::b::c`, and each branch of a `use` tree) out of Rust text: enough of a lexer to leave out
//! comments and strings, no parser. What a rule looks for it must see in `use` lines and in the midst of code alike.

/// A path as written, `crate`, `self` and `super` resolved against the file's module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedPath {
    /// Its segments; the first is a crate, `crate`, or a name in scope.
    pub segments: Vec<String>,
    /// The line on which it ends, from 1.
    pub line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Colons,
    Open,
    Close,
    Comma,
    Star,
    Other,
}

/// Every path in `text`. `module` is the file's module path from the crate's root (`["pure", "compose"]`).
///
/// Reads up to a `#[cfg(test)]` at the margin: what follows is the file's tests, which no rule binds.
#[must_use]
pub fn used_paths(text: &str, module: &[String]) -> Vec<UsedPath> {
    let tokens = tokens(before_tests(text));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at].0 {
            Token::Word(_) => at = read_path(&tokens, at, &mut Vec::new(), &mut found),
            _ => at += 1,
        }
    }
    for path in &mut found {
        resolve(&mut path.segments, module);
    }
    found
}

fn before_tests(text: &str) -> &str {
    let end = text.find("\n#[cfg(test)]\nmod ").map_or(text.len(), |i| i + 1);
    text.get(..end).unwrap_or(text)
}

/// The module path of a file below `src/`: `pure/compose.rs` is `["pure", "compose"]`, `lib.rs` the root.
#[must_use]
pub fn module_of(path_in_src: &str) -> Vec<String> {
    let stem = path_in_src.strip_suffix(".rs").unwrap_or(path_in_src);
    match stem {
        "lib" | "main" => Vec::new(),
        other => other.split('/').map(str::to_owned).collect(),
    }
}

fn resolve(segments: &mut Vec<String>, module: &[String]) {
    let mut base: Option<Vec<String>> = None;
    let mut taken = 0;
    for segment in segments.iter() {
        match segment.as_str() {
            "self" => {
                base.get_or_insert_with(|| module.to_vec());
            }
            "super" => {
                base.get_or_insert_with(|| module.to_vec()).pop();
            }
            _ => break,
        }
        taken += 1;
    }
    if let Some(base) = base {
        let rest = segments.split_off(taken);
        *segments = std::iter::once("crate".to_owned())
            .chain(base)
            .chain(rest)
            .collect();
    }
}

/// Reads one path or `use` tree that starts at `at`; gives the place after it.
fn read_path(
    tokens: &[(Token, usize)],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<UsedPath>,
) -> usize {
    let depth = prefix.len();
    let line_of = |at: usize| tokens.get(at).map_or(0, |t| t.1);
    loop {
        match tokens.get(at).map(|t| &t.0) {
            Some(Token::Word(word)) => prefix.push(word.clone()),
            Some(Token::Star) => prefix.push("*".to_owned()),
            Some(Token::Open) => {
                at = read_group(tokens, at + 1, prefix, found);
                prefix.truncate(depth);
                return at;
            }
            _ => break,
        }
        at += 1;
        if tokens.get(at).map(|t| &t.0) != Some(&Token::Colons) {
            break;
        }
        at += 1;
    }
    if prefix.len() > depth {
        found.push(UsedPath {
            segments: prefix.clone(),
            line: line_of(at.saturating_sub(1)),
        });
    }
    prefix.truncate(depth);
    at
}

fn read_group(
    tokens: &[(Token, usize)],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<UsedPath>,
) -> usize {
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Close => return at + 1,
            Token::Word(_) | Token::Star | Token::Open => at = read_path(tokens, at, prefix, found),
            _ => at += 1,
        }
    }
    at
}

fn tokens(text: &str) -> Vec<(Token, usize)> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let begun = at;
        match c {
            '/' if next == Some('/') => at = skip_while(&chars, at, |c| c != '\n'),
            '/' if next == Some('*') => at = skip_block_comment(&chars, at),
            '"' => at = skip_string(&chars, at),
            'r' | 'b' if raw_string_hashes(&chars, at).is_some() => at = skip_raw_string(&chars, at),
            '\'' => at = skip_quote(&chars, at),
            c if c.is_alphabetic() || c == '_' => {
                at = skip_while(&chars, at, |c| c.is_alphanumeric() || c == '_');
                out.push((Token::Word(chars[begun..at].iter().collect()), line));
            }
            ':' if next == Some(':') => {
                out.push((Token::Colons, line));
                at += 2;
            }
            _ => {
                match c {
                    '{' => out.push((Token::Open, line)),
                    '}' => out.push((Token::Close, line)),
                    ',' => out.push((Token::Comma, line)),
                    '*' => out.push((Token::Star, line)),
                    c if c.is_whitespace() => {}
                    _ => out.push((Token::Other, line)),
                }
                at += 1;
            }
        }
        line += chars[begun..at.min(chars.len())]
            .iter()
            .filter(|c| **c == '\n')
            .count();
    }
    out
}

fn skip_while(chars: &[char], mut at: usize, keep: impl Fn(char) -> bool) -> usize {
    while chars.get(at).is_some_and(|c| keep(*c)) {
        at += 1;
    }
    at
}

fn skip_block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn skip_string(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while let Some(c) = chars.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// How many `#` open the raw string at `at` (`r#"`, `br"`), none when there is no raw string.
fn raw_string_hashes(chars: &[char], at: usize) -> Option<usize> {
    let after_r = match (chars.get(at), chars.get(at + 1)) {
        (Some('r'), _) => at + 1,
        (Some('b'), Some('r')) => at + 2,
        _ => return None,
    };
    let quote = skip_while(chars, after_r, |c| c == '#');
    (chars.get(quote) == Some(&'"')).then_some(quote - after_r)
}

fn skip_raw_string(chars: &[char], at: usize) -> usize {
    let hashes = raw_string_hashes(chars, at).unwrap_or(0);
    let mut at = skip_while(chars, at, |c| c != '"') + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars.iter().skip(at + 1).take_while(|c| **c == '#').count() >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// A character literal is skipped whole, a lifetime's quote alone.
fn skip_quote(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return skip_while(chars, at + 3, |c| c != '\'') + 1;
    }
    if chars.get(at + 2) == Some(&'\'') {
        return at + 3;
    }
    at + 1
}
