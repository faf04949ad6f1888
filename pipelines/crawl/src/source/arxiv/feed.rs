//! Parses arXiv's responses: the Atom feed of a search, and the license record of a paper.

use quick_xml::Reader;
use quick_xml::events::Event;

use pybench_files::entity;

/// Maximum number of papers read from a feed.
const MAX_PAPERS: usize = 2000;
/// Longest text of an element, in bytes; more is ignored.
const MAX_TEXT: usize = 10_000;
/// Maximum nesting of elements.
const MAX_DEPTH: usize = 32;

/// The papers of a feed with their versions, such as `2407.16732v2`.
///
/// # Errors
/// arXiv's error message, or why the response is not a feed.
pub(super) fn papers(text: &str) -> Result<Vec<String>, String> {
    let mut papers = Vec::new();
    let mut wrong = None;
    let mut is_feed = false;
    elements(text, &mut |path, text| {
        is_feed |= path.first().is_some_and(|root| root == "feed");
        match path {
            [_, entry, id] if entry == "entry" && id == "id" => match paper_of_id(text) {
                Some(paper) if papers.len() < MAX_PAPERS => papers.push(paper),
                Some(_) => {}
                // arXiv reports errors as entries.
                None => wrong = Some(text.to_owned()),
            },
            [_, entry, summary] if entry == "entry" && summary == "summary" && wrong.is_some() => {
                wrong = Some(text.to_owned());
            }
            _ => {}
        }
    })?;
    match wrong {
        Some(wrong) => Err(format!("arXiv says: {}", shortened(&wrong))),
        None if is_feed => Ok(papers),
        None => Err("not an Atom feed".to_owned()),
    }
}

/// The license in the record of a paper; `None` if the record has none.
///
/// # Errors
/// arXiv's error message, or why the response is not a record.
pub(super) fn license(text: &str) -> Result<Option<String>, String> {
    let (mut license, mut wrong, mut is_record) = (None, None, false);
    elements(text, &mut |path, text| {
        is_record |= path.first().is_some_and(|root| root == "OAI-PMH");
        match path.last().map(String::as_str) {
            Some("license") => license = Some(text.to_owned()),
            Some("error") => wrong = Some(text.to_owned()),
            _ => {}
        }
    })?;
    match wrong {
        Some(wrong) => Err(format!("arXiv says: {}", shortened(&wrong))),
        None if is_record => Ok(license),
        None => Err("not an OAI-PMH record".to_owned()),
    }
}

/// The paper number in `http://arxiv.org/abs/cs.AI/0101001v1`.
fn paper_of_id(id: &str) -> Option<String> {
    let (_, paper) = id.trim().split_once("arxiv.org/abs/")?;
    is_paper(paper).then(|| paper.to_owned())
}

/// Whether a text is a paper number with a version.
pub(super) fn is_paper(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some((number, version)) = text.rsplit_once('v') else {
        return false;
    };
    let new = |number: &str| {
        let parts = number.split_once('.');
        parts.is_some_and(|(a, b)| {
            a.len() == 4 && digits(a) && (4..=5).contains(&b.len()) && digits(b)
        })
    };
    let old = |number: &str| {
        let plain = |c: u8| c.is_ascii_alphabetic() || c == b'-' || c == b'.';
        let parts = number.split_once('/');
        parts.is_some_and(|(a, b)| {
            let archive = !a.is_empty() && a.bytes().all(plain) && !a.starts_with('.');
            archive && b.len() == 7 && digits(b)
        })
    };
    text.len() <= 40 && digits(version) && (new(number) || old(number))
}

fn shortened(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(200).collect()
}

/// Calls `visit` at the end of each element with the names of its ancestors and itself, without namespace
/// prefixes, and with its text.
fn elements(text: &str, visit: &mut dyn FnMut(&[String], &str)) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    let (mut path, mut texts): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(tag) => {
                if path.len() >= MAX_DEPTH {
                    return Err(format!("elements deeper than {MAX_DEPTH}"));
                }
                path.push(AsRef::<str>::as_ref(&tag.local_name()).to_owned());
                texts.push(String::new());
            }
            Event::Empty(tag) => {
                path.push(AsRef::<str>::as_ref(&tag.local_name()).to_owned());
                visit(&path, "");
                path.pop();
            }
            Event::Text(text) => add(&mut texts, &text),
            Event::CData(text) => add(&mut texts, &text),
            Event::GeneralRef(named) => add(&mut texts, entity::resolve(&named)),
            Event::End(_) => {
                visit(&path, &texts.pop().unwrap_or_default());
                path.pop();
            }
            Event::Eof if !path.is_empty() => return Err("it ends inside an element".to_owned()),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

fn add(texts: &mut [String], text: &str) {
    if let Some(last) = texts.last_mut()
        && last.len() + text.len() <= MAX_TEXT
    {
        last.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_numbers_are_recognized() {
        for good in [
            "2407.16732v2",
            "0704.0001v1",
            "hep-th/9901001v12",
            "math.GT/0309136v1",
        ] {
            assert!(is_paper(good), "{good}");
        }
        for wrong in [
            "2407.16732",
            "2407.16732v",
            "2407.167v1",
            "../..v1",
            "a/../1234567v1",
            "x/12345v1",
            "v1",
            "/1234567v1",
        ] {
            assert!(!is_paper(wrong), "{wrong}");
        }
    }

    #[test]
    fn invalid_feeds_are_rejected() {
        for (text, reason) in [
            ("", "not an Atom feed"),
            ("<html><body>busy</body></html>", "not an Atom feed"),
            ("<feed><entry>", "ends inside"),
            ("<feed></entry>", ""),
            (&format!("<feed>{}", "<a>".repeat(50)), "deeper"),
        ] {
            let error = papers(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!(papers("<feed/>"), Ok(vec![]));
    }

    #[test]
    fn fuzz_feeds() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            for text in [
                text.to_string(),
                format!("<feed><entry><id>{text}</id></entry></feed>"),
            ] {
                if let Ok(papers) = papers(&text) {
                    assert!(papers.iter().all(|paper| is_paper(paper)));
                }
                let _ = license(&text);
            }
        });
    }
}
