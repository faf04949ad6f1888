//! A TOML document in which every key and value knows where it came from: a place in the file, or
//! a `--set` of the command line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a key or value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Bytes of the file.
    File(Range<usize>),
    /// The key path of a `--set`. Its value may be a secret typed in the wrong place: it is not shown.
    Set(String),
}

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// As in TOML.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Table(Vec<Entry>),
    Array(Vec<Node>),
    Leaf(toml::Value),
}

/// A key, the place of the key, and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) place: Place,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(place: &Place, message: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            message: message.into(),
        }
    }
}

impl Node {
    /// Parse a whole document. Syntax errors come with their place.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let table = DeTable::parse(text).map_err(|error| {
            let end = text.len();
            let place = Place::File(error.span().unwrap_or(end..end));
            Problem::new(&place, error.message())
        })?;
        let place = Place::File(table.span());
        let value = Value::Table(entries(table.get_ref(), &Place::File)?);
        Ok(Self { place, value })
    }

    /// The value of a `--set`: TOML where it parses as such, else a string as it stands.
    fn parse_set(path: &str, text: &str) -> Result<Self, Problem> {
        let place = |_| Place::Set(path.to_owned());
        match DeValue::parse(text) {
            Ok(value) => node(&value, &place),
            Err(_) => Ok(Self {
                place: place(0..0),
                value: Value::Leaf(toml::Value::String(text.to_owned())),
            }),
        }
    }

    /// The value under a key of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            Value::Array(_) | Value::Leaf(_) => None,
        }
    }

    /// The place of the value at a dotted path; of the nearest table above it where it is absent.
    pub(super) fn place_of(&self, path: &str) -> &Place {
        let mut node = self;
        for key in path.split('.') {
            let next = match &node.value {
                Value::Array(items) => key.parse().ok().and_then(|i: usize| items.get(i)),
                _ => node.get(key).map(|entry| &entry.node),
            };
            let Some(next) = next else { break };
            node = next;
        }
        &node.place
    }

    /// Apply `path=value`.
    pub(super) fn set(&mut self, assignment: &str) -> Result<(), Problem> {
        let Some((path, text)) = assignment.split_once('=') else {
            let place = Place::Set(assignment.to_owned());
            return Err(Problem::new(&place, "expected `key.path=value`"));
        };
        let path = path.trim();
        let value = Self::parse_set(path, text.trim())?;
        let keys = split_path(path).ok_or_else(|| {
            let place = Place::Set(path.to_owned());
            Problem::new(&place, "the key path is empty or has an empty part")
        })?;
        self.insert(&keys, value)
    }

    fn insert(&mut self, keys: &[String], new: Self) -> Result<(), Problem> {
        let Some((key, rest)) = keys.split_first() else {
            *self = new;
            return Ok(());
        };
        let place = new.place.clone();
        match &mut self.value {
            Value::Table(entries) => {
                let at = match entries.iter().position(|entry| entry.key == *key) {
                    Some(at) => at,
                    None => {
                        entries.push(Entry::empty(key, &place));
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
                        &place,
                        format!(
                            "`{key}` is no index of a list of {count}: 0 to {count}, where {count} appends"
                        ),
                    ));
                };
                if index == count {
                    items.push(Entry::empty(key, &place).node);
                }
                items[index].insert(rest, new)
            }
            Value::Leaf(_) => Err(Problem::new(
                &place,
                format!("`{key}` cannot be set: what stands before it is a single value"),
            )),
        }
    }

    /// Without the places.
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

impl Entry {
    fn empty(key: &str, place: &Place) -> Self {
        Self {
            key: key.to_owned(),
            place: place.clone(),
            node: Node {
                place: place.clone(),
                value: Value::Table(Vec::new()),
            },
        }
    }
}

/// `a.b."c.d"` → `a`, `b`, `c.d`; `None` where a part is empty or a quote does not close.
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

type PlaceOf<'a> = &'a dyn Fn(Range<usize>) -> Place;

fn entries(table: &DeTable<'_>, place: PlaceOf<'_>) -> Result<Vec<Entry>, Problem> {
    table
        .iter()
        .map(|(key, value)| {
            Ok(Entry {
                key: key.get_ref().to_string(),
                place: place(key.span()),
                node: node(value, place)?,
            })
        })
        .collect()
}

fn node(value: &Spanned<DeValue<'_>>, place: PlaceOf<'_>) -> Result<Node, Problem> {
    let at = place(value.span());
    let value = match value.get_ref() {
        DeValue::Table(table) => Value::Table(entries(table, place)?),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| node(item, place));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        leaf => Value::Leaf(
            leaf_value(leaf)
                .ok_or_else(|| Problem::new(&at, "the number does not fit into 64 bits"))?,
        ),
    };
    Ok(Node { place: at, value })
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
    fn sets_replace_append_and_create() {
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
    fn impossible_sets_are_refused() {
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
    fn a_value_cannot_smuggle_in_another_key() {
        let mut node = Node::parse("a = 1").unwrap();
        node.set("a=1\nb = 2").unwrap();
        let value = node.into_toml();
        assert_eq!(value["a"].as_str(), Some("1\nb = 2"));
        assert!(value.get("b").is_none());
    }
}
