//! YAML as a tree with places, for compose files alone. Stands alone because its bounds do: size, depth, number of
//! nodes, and what aliases multiply. A key that is written twice is an error; `<<` merges as compose says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use meshplan_schemas::finding::{Finding, Source};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// How deep lists and tables may lie in each other.
const DEPTH: usize = 48;
/// The most nodes, each copy that an alias makes counted.
const NODES: usize = 50_000;
/// The most bytes of text, each copy that an alias makes counted.
const TEXT_BYTES: usize = 4 * 1024 * 1024;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A text; `plain` is one without quotes.
    Text {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    /// In the order of the file.
    Table(Vec<(Key, Node)>),
}

/// A key and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

impl Node {
    /// Whether nothing stands there.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Text { text, plain: true } if matches!(text.as_str(), "" | "~" | "null"))
    }
}

/// What a node and all below it cost.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

/// A list or table that is not at its end yet.
struct Open {
    span: Range<usize>,
    anchor: usize,
    holds: Holds,
    cost: Cost,
}

enum Holds {
    List(Vec<Node>),
    Table {
        entries: Vec<(Key, Node)>,
        known: BTreeSet<String>,
        merged: Vec<Node>,
        key: Option<Key>,
    },
}

struct Reading<'s> {
    source: &'s Source,
    /// Byte offsets of the characters: the parser counts those.
    bytes: Vec<usize>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, (Node, Cost)>,
    spent: Cost,
    root: Option<Node>,
}

/// Reads the only document of a file; none where it is empty.
///
/// # Errors
/// It is no YAML, more than the bounds allow, several documents, or says a key twice.
pub(super) fn read(source: &Source) -> Result<Option<Node>, Finding> {
    let text = source.text();
    let mut bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    bytes.push(text.len());
    let mut reading = Reading {
        source,
        bytes,
        open: Vec::new(),
        anchors: BTreeMap::new(),
        spent: Cost::default(),
        root: None,
    };
    let mut parser = Parser::new_from_str(text);
    let mut documents = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| {
            let at = reading.byte(error.marker().index());
            source.error(at..at, format!("this is no YAML: {}", error.info()))
        })?;
        let span = reading.span(span);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(source.error(span, "a second document begins here: one file, one document"));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(tag) = tag.filter(|tag| !(tag.is_yaml_core_schema() && tag.suffix == "str")) {
                    return Err(source.error(span, format!("the tag `{tag}` is not understood")));
                }
                reading.text(text.into_owned(), style == ScalarStyle::Plain, anchor, span)?;
            }
            Event::SequenceStart(anchor, tag) => {
                reading.begin(tag.is_some(), anchor, span, Holds::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                let holds = Holds::Table {
                    entries: Vec::new(),
                    known: BTreeSet::new(),
                    merged: Vec::new(),
                    key: None,
                };
                reading.begin(tag.is_some(), anchor, span, holds)?;
            }
            Event::SequenceEnd | Event::MappingEnd => reading.end()?,
            Event::Alias(anchor) => reading.alias(anchor, span)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(reading.root)
}

impl Reading<'_> {
    fn byte(&self, at: usize) -> usize {
        let end = self.bytes.last().copied().unwrap_or_default();
        self.bytes.get(at).copied().unwrap_or(end)
    }

    fn span(&self, span: Span) -> Range<usize> {
        let start = self.byte(span.start.index());
        start..self.byte(span.end.index()).max(start)
    }

    fn spend(&mut self, cost: Cost, span: &Range<usize>) -> Result<(), Finding> {
        self.spent.nodes += cost.nodes;
        self.spent.bytes += cost.bytes;
        let why = if self.open.len() + cost.depth > DEPTH {
            format!("lists and tables lie in each other more than {DEPTH} deep")
        } else if self.spent.nodes > NODES {
            format!("this has more than {NODES} values, what aliases repeat counted")
        } else if self.spent.bytes > TEXT_BYTES {
            format!("this has more than {TEXT_BYTES} bytes of text, what aliases repeat counted")
        } else {
            return Ok(());
        };
        Err(self.source.error(span.clone(), why))
    }

    fn begin(
        &mut self,
        tagged: bool,
        anchor: usize,
        span: Range<usize>,
        holds: Holds,
    ) -> Result<(), Finding> {
        if tagged {
            return Err(self
                .source
                .error(span, "a tag of a list or table is not understood"));
        }
        let cost = Cost {
            nodes: 1,
            bytes: 0,
            depth: 1,
        };
        self.spend(cost, &span)?;
        self.open.push(Open {
            span,
            anchor,
            holds,
            cost,
        });
        Ok(())
    }

    fn text(&mut self, text: String, plain: bool, anchor: usize, span: Range<usize>) -> Result<(), Finding> {
        let cost = Cost {
            nodes: 1,
            bytes: text.len(),
            depth: 0,
        };
        self.spend(cost, &span)?;
        let node = Node {
            value: Value::Text { text, plain },
            span,
        };
        self.put(node, anchor, cost)
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) -> Result<(), Finding> {
        let Some((node, cost)) = self.anchors.get(&anchor) else {
            return Err(self
                .source
                .error(span, "this alias stands inside of what it names"));
        };
        let (node, cost) = (node.value.clone(), *cost);
        self.spend(cost, &span)?;
        self.put(Node { value: node, span }, 0, cost)
    }

    fn end(&mut self) -> Result<(), Finding> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.holds {
            Holds::List(list) => Value::List(list),
            Holds::Table {
                mut entries,
                mut known,
                merged,
                ..
            } => {
                for table in merged {
                    let Value::Table(more) = table.value else {
                        let why = "`<<` merges a table, or a list of tables";
                        return Err(self.source.error(table.span, why));
                    };
                    entries.extend(more.into_iter().filter(|(key, _)| known.insert(key.text.clone())));
                }
                Value::Table(entries)
            }
        };
        let node = Node {
            value,
            span: open.span,
        };
        self.put(node, open.anchor, open.cost)
    }

    /// Puts a whole value where it belongs.
    fn put(&mut self, node: Node, anchor: usize, cost: Cost) -> Result<(), Finding> {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.cost.nodes += cost.nodes;
        open.cost.bytes += cost.bytes;
        open.cost.depth = open.cost.depth.max(cost.depth + 1);
        match &mut open.holds {
            Holds::List(list) => list.push(node),
            Holds::Table {
                entries,
                known,
                merged,
                key,
            } => match key.take() {
                None => {
                    let Value::Text { text, .. } = node.value else {
                        return Err(self.source.error(node.span, "a key is a text"));
                    };
                    if text != "<<" && !known.insert(text.clone()) {
                        return Err(self
                            .source
                            .error(node.span, format!("the key `{text}` stands here twice")));
                    }
                    *key = Some(Key {
                        text,
                        span: node.span,
                    });
                }
                Some(key) if key.text == "<<" => match node.value {
                    Value::List(list) => merged.extend(list),
                    _ => merged.push(node),
                },
                Some(key) => entries.push((key, node)),
            },
        }
        Ok(())
    }
}
