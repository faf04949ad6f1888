//! What calls cost: a small table of list prices, and bounds on tokens before a call.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Price;
use crate::run::TeacherChoice;
use crate::trajectory::Message;

#[derive(Deserialize)]
struct Table {
    model: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    prompt: f64,
    completion: f64,
    /// When it was the list price; for people.
    #[serde(rename = "date")]
    _date: String,
}

static TABLE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    // The table is part of the program; a test reads it.
    let table: Result<Table, _> = toml::from_str(include_str!("prices.toml"));
    table.map(|table| table.model).unwrap_or_default()
});

/// The list price of a well-known model, also under a dated name (`gpt-4o-2024-08-06`).
pub fn known_price(model: &str) -> Option<Price> {
    let undated = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let entry = TABLE
        .iter()
        .find(|entry| entry.name == model)
        .or_else(|| TABLE.iter().find(|entry| entry.name == undated))?;
    Some(Price {
        prompt: entry.prompt,
        completion: entry.completion,
    })
}

/// What a teacher's tokens cost: the recipe's price, else the table's, halved where it is asked in batches;
/// `None` when it is not known. Only endpoints cost anything.
pub fn price_of(teacher: &TeacherChoice) -> Option<Price> {
    let TeacherChoice::Openai {
        model,
        price,
        batch,
        ..
    } = teacher
    else {
        return Some(Price::default());
    };
    let live = price.or_else(|| known_price(model))?;
    Some(if *batch { live.in_batches() } else { live })
}

/// Tokens that these messages have at most: tokenizers of bytes make no more tokens than bytes, and
/// a chat template adds a few per message.
pub fn token_bound(messages: &[Message]) -> u64 {
    const TEMPLATE: u64 = 16;
    let of = |message: &Message| message.content.len() as u64 + TEMPLATE;
    TEMPLATE + messages.iter().map(of).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Role;

    #[test]
    fn the_table_is_read_and_dated_names_are_known() {
        assert!(TABLE.len() >= 5);
        let mini = known_price("gpt-4o-mini").unwrap();
        assert_eq!(known_price("gpt-4o-mini-2024-07-18"), Some(mini));
        assert_eq!(known_price("gpt-4.1").unwrap().prompt, 2.0);
        assert_eq!(known_price("my-model"), None);
        assert_eq!(known_price(""), None);
    }

    #[test]
    fn the_bound_covers_every_byte() {
        let messages = [
            Message::new(Role::User, "数据"),
            Message::new(Role::User, ""),
        ];
        assert_eq!(token_bound(&messages), 6 + 3 * 16);
    }
}
