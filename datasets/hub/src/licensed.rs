//! The license of a repository, as its card states it.

use serde::Deserialize;

use super::Repository;
use super::error::HubError;

/// The license fields of the Hub's repository information.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LicenseInfo {
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

impl LicenseInfo {
    /// The licenses by the Hub's names; empty if there are none.
    pub fn names(&self) -> Vec<&str> {
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
    /// The licenses that the card names.
    ///
    /// # Errors
    /// The request failed.
    pub async fn licenses(&self) -> Result<Vec<String>, HubError> {
        let what = format!("asking for the license of {}", self.shown());
        let mut url = self.api([]);
        url.query_pairs_mut()
            .append_pair("expand", "cardData")
            .append_pair("expand", "tags");
        let card: LicenseInfo = self.hub.json(&what, || self.hub.get(url.clone())).await?;
        Ok(card.names().into_iter().map(str::to_owned).collect())
    }
}
