//! What the card of a repository says of its licence.

use serde::Deserialize;

use super::Repository;
use super::refusal::Refusal;

/// What the Hub says of a repository, as far as its licence goes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Licensed {
    card_data: Option<Card>,
    tags: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Card {
    license: Option<OneOrMore>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Licensed {
    /// The licences as the Hub names them; none where it says nothing.
    pub(crate) fn named(&self) -> Vec<&str> {
        let card = self.card_data.as_ref();
        match card.and_then(|card| card.license.as_ref()) {
            Some(OneOrMore::One(one)) => vec![one.as_str()],
            Some(OneOrMore::More(more)) => more.iter().map(String::as_str).collect(),
            None => {
                let tags = self.tags.iter();
                tags.filter_map(|tag| tag.strip_prefix("license:"))
                    .collect()
            }
        }
    }
}

impl Repository<'_> {
    /// The licences that its card names.
    ///
    /// # Errors
    /// Refusals.
    pub async fn licences(&self) -> Result<Vec<String>, Refusal> {
        let what = format!("asking for the licence of {}", self.shown());
        let mut url = self.api([]);
        url.query_pairs_mut()
            .append_pair("expand", "cardData")
            .append_pair("expand", "tags");
        let card: Licensed = self.hub.json(&what, || self.hub.get(url.clone())).await?;
        Ok(card.named().into_iter().map(str::to_owned).collect())
    }
}
