//! Which trajectories become part of a site.

use axum::extract::Query;
use axum::http::Uri;
use pybench_run::RunError;

use crate::index::ListQuery;
use crate::sources::Sources;

/// Maximum number of trajectories of one choice: those of a page of the list.
const MAX_TRAJECTORIES: u64 = 500;

/// What `--trajectories` names.
pub(super) struct Choice {
    /// Name of the run or dataset.
    pub(super) name: String,
    /// As it was typed.
    text: String,
    which: Which,
}

enum Which {
    Number(u64),
    Matching(Box<ListQuery>),
}

impl Choice {
    /// Parses `NAME/NUMBER` or `NAME?FILTERS`.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is neither.
    pub(super) fn parse(text: &str) -> Result<Self, RunError> {
        let bad = |why: &str| {
            RunError::BadInput(format!(
                "--trajectories {text}: {why}; give NAME/NUMBER, or NAME?FILTERS as in the address of a list, such as \
                 `quickstart?verdict=rejected`"
            ))
        };
        let (name, which) = match (text.split_once('?'), text.rsplit_once('/')) {
            (Some((name, filters)), _) => {
                let uri: Uri = format!("/?{filters}")
                    .parse()
                    .map_err(|_| bad("the filters are no part of an address"))?;
                let query = Query::<ListQuery>::try_from_uri(&uri);
                let Query(query) = query.map_err(|error| bad(&error.body_text()))?;
                (name, Which::Matching(Box::new(query)))
            }
            (None, Some((name, number))) => {
                let number = number.parse().map_err(|_| bad("this is no number"))?;
                (name, Which::Number(number))
            }
            (None, None) => return Err(bad("it names no trajectory")),
        };
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            which,
        })
    }

    /// The numbers of the trajectories.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there are none, or too many; the source cannot be read.
    pub(super) fn numbers(&self, sources: &Sources) -> Result<Vec<u64>, RunError> {
        let bad = |why: String| RunError::BadInput(format!("--trajectories {}: {why}", self.text));
        let opened = sources.open_whole(&self.name)?;
        let opened =
            opened.ok_or_else(|| bad(format!("there is no run or dataset `{}`", self.name)))?;
        let query = match &self.which {
            Which::Number(number) => {
                let found = opened.index.row(*number)?;
                let row = found.ok_or_else(|| bad(format!("there is no trajectory {number}")))?;
                return Ok(vec![row.number]);
            }
            Which::Matching(query) => query,
        };
        let page = opened.page(ListQuery {
            from: 0,
            count: MAX_TRAJECTORIES,
            ..query.as_ref().clone()
        })?;
        match page.total {
            0 => Err(bad("no trajectory matches".to_owned())),
            1..=MAX_TRAJECTORIES => Ok(page.rows.iter().map(|row| row.number).collect()),
            total => Err(bad(format!(
                "{total} trajectories match, and a choice has at most {MAX_TRAJECTORIES}; narrow the filters"
            ))),
        }
    }
}
