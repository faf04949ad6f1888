//! A TOML document that records where each key and value came from: a location in the file, or a `--set`
//! option of the command line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a key or value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// Byte range in the file.
    File(Range<usize>),
    /// Key path of a `--set` option. The value is not kept for messages, because it may be a mistyped secret.
    Set(String),
}

/// A value and its location.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) location: Location,
    pub(super) value: Value,
}

/// A TOML value whose children carry locations.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Table(Vec<TableEntry>),
    Array(Vec<Node>),
    Leaf(toml::Value),
}

/// A key of a table, the location of the key, and its value.
#[derive(Clone, Debug)]
pub(super) struct TableEntry {
    pub(super) key: String,
    pub(super) location: Location,
    pub(super) node: Node,
}

/// A problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) location: Location,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(location: &Location, message: impl Into<String>) -> Self {
        Self {
            location: location.clone(),
            message: message.into(),
        }
    }
}

impl Node {
    /// Parses a whole document. Syntax errors carry their location.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let table = DeTable::parse(text).map_err(|error| {
            let end = text.len();
            let location = Location::File(error.span().unwrap_or(end..end));
            Problem::new(&location, error.message())
        })?;
        let location = Location::File(table.span());
        let value = Value::Table(entries(table.get_ref(), &Location::File)?);
        Ok(Self { location, value })
    }

    /// Parses the value of a `--set` option: TOML if possible, otherwise a plain string.
    fn parse_set(path: &str, text: &str) -> Result<Self, Problem> {
        let location = |_| Location::Set(path.to_owned());
        match DeValue::parse(text) {
            Ok(value) => node(&value, &location),
            Err(_) => Ok(Self {
                location: location(0..0),
                value: Value::Leaf(toml::Value::String(text.to_owned())),
            }),
        }
    }

    /// The value under a key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&TableEntry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            Value::Array(_) | Value::Leaf(_) => None,
        }
    }

    /// Location of the value at a dotted path, or of the nearest enclosing table if the value is absent.
    pub(super) fn location_of(&self, path: &str) -> &Location {
        let mut node = self;
        for key in path.split('.') {
            let next = match &node.value {
                Value::Array(items) => key.parse().ok().and_then(|i: usize| items.get(i)),
                _ => node.get(key).map(|entry| &entry.node),
            };
            let Some(next) = next else { break };
            node = next;
        }
        &node.location
    }

    /// Applies `path=value`.
    pub(super) fn set(&mut self, assignment: &str) -> Result<(), Problem> {
        let Some((path, text)) = assignment.split_once('=') else {
            let location = Location::Set(assignment.to_owned());
            return Err(Problem::new(&location, "expected `key.path=value`"));
        };
        let path = path.trim();
        let value = Self::parse_set(path, text.trim())?;
        let keys = split_path(path).ok_or_else(|| {
            let location = Location::Set(path.to_owned());
            Problem::new(&location, "the key path is empty or has an empty part")
        })?;
        self.insert(&keys, value)
    }

    fn insert(&mut self, keys: &[String], new: Self) -> Result<(), Problem> {
        let Some((key, rest)) = keys.split_first() else {
            *self = new;
            return Ok(());
        };
        let location = new.location.clone();
        match &mut self.value {
            Value::Table(entries) => {
                let at = match entries.iter().position(|entry| entry.key == *key) {
                    Some(at) => at,
                    None => {
                        entries.push(TableEntry::empty(key, &location));
                        entries.len() - 1
                    }
                };
                entries[at].node.insert(rest, new)
            }
            Value::Array(items) => {
                let count = items.len();
                let index = key.parse().ok().filter(|index: &usize| *index <= count);
                let Some(index) = index else {
                    return Err(Problem::new(
                        &location,
                        format!(
                            "`{key}` is not an index of this list; use 0 to {count}, where {count} appends"
                        ),
                    ));
                };
                if index == count {
                    items.push(TableEntry::empty(key, &location).node);
                }
                items[index].insert(rest, new)
            }
            Value::Leaf(_) => Err(Problem::new(
                &location,
                format!("`{key}` cannot be set: the value before it is neither a table nor a list"),
            )),
        }
    }

    /// The plain TOML value, without locations.
    pub(super) fn into_toml(self) -> toml::Value {
        match self.value {
            Value::Leaf(value) => value,
            Value::Array(items) => {
                toml::Value::Array(items.into_iter().map(Self::into_toml).collect())
            }
            Value::Table(entries) => toml::Value::Table(
                entries
                    .into_iter()
                    .map(|entry| (entry.key, entry.node.into_toml()))
                    .collect(),
            ),
        }
    }
}

impl TableEntry {
    fn empty(key: &str, location: &Location) -> Self {
        Self {
            key: key.to_owned(),
            location: location.clone(),
            node: Node {
                location: location.clone(),
                value: Value::Table(Vec::new()),
            },
        }
    }
}

/// Splits `a.b."c.d"` into `a`, `b`, `c.d`; `None` if a part is empty or a quote is not closed.
fn split_path(path: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut rest = path;
    loop {
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if key.is_empty() {
            return None;
        }
        keys.push(key.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(keys),
        }
    }
}

type Locate<'a> = &'a dyn Fn(Range<usize>) -> Location;

fn entries(table: &DeTable<'_>, location: Locate<'_>) -> Result<Vec<TableEntry>, Problem> {
    table
        .iter()
        .map(|(key, value)| {
            Ok(TableEntry {
                key: key.get_ref().to_string(),
                location: location(key.span()),
                node: node(value, location)?,
            })
        })
        .collect()
}

fn node(value: &Spanned<DeValue<'_>>, location: Locate<'_>) -> Result<Node, Problem> {
    let at = location(value.span());
    let value = match value.get_ref() {
        DeValue::Table(table) => Value::Table(entries(table, location)?),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| node(item, location));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        leaf => Value::Leaf(
            leaf_value(leaf)
                .ok_or_else(|| Problem::new(&at, "the number does not fit in 64 bits"))?,
        ),
    };
    Ok(Node {
        location: at,
        value,
    })
}

fn leaf_value(leaf: &DeValue<'_>) -> Option<toml::Value> {
    Some(match leaf {
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Integer(i) => {
            toml::Value::Integer(i64::from_str_radix(i.as_str(), i.radix()).ok()?)
        }
        DeValue::Float(f) => toml::Value::Float(f.as_str().parse().ok()?),
        DeValue::Boolean(b) => toml::Value::Boolean(*b),
        DeValue::Datetime(at) => toml::Value::Datetime(*at),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_dots_outside_quotes() {
        let split = |path| split_path(path).map(|keys| keys.join("|"));
        assert_eq!(split("a.b.0").as_deref(), Some("a|b|0"));
        assert_eq!(split(r#"h."X.Y".z"#).as_deref(), Some("h|X.Y|z"));
        for bad in ["", ".", "a.", ".a", "a..b", r#""a"#, r#""a"b"#] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }

    #[test]
    fn set_replaces_appends_and_creates() {
        let mut node = Node::parse("a = 1\nlist = [1, 2]\n").unwrap();
        for assignment in [
            "a=two words",
            "list.2=3",
            "list.0=\"9\"",
            "new.deep.key = [true]",
        ] {
            node.set(assignment).unwrap();
        }
        let expected = "a = 'two words'\nlist = ['9', 2, 3]\nnew.deep.key = [true]";
        let expected: toml::Value = toml::from_str(expected).unwrap();
        assert_eq!(node.into_toml(), expected);
    }

    #[test]
    fn impossible_assignments_are_rejected() {
        let mut node = Node::parse("a = 1\nlist = [1, 2]\n").unwrap();
        for assignment in [
            "a",
            "=1",
            "a.b=1",
            "list.4=1",
            "list.x=1",
            "a=99999999999999999999",
        ] {
            assert!(node.set(assignment).is_err(), "{assignment}");
        }
    }

    #[test]
    fn a_value_cannot_inject_another_key() {
        let mut node = Node::parse("a = 1").unwrap();
        node.set("a=1\nb = 2").unwrap();
        let value = node.into_toml();
        assert_eq!(value["a"].as_str(), Some("1\nb = 2"));
        assert!(value.get("b").is_none());
    }
}
