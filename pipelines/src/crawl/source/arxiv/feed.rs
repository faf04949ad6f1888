//! What arXiv answers: an Atom feed of papers, and a paper's licence.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::crawl::entity;

/// Most papers of a feed that are read.
const MAX_PAPERS: usize = 2000;
/// Longest text of an element that is read.
const MAX_TEXT: usize = 10_000;
/// Deepest element.
const MAX_DEPTH: usize = 32;

/// The papers of a feed, with their versions: `2407.16732v2`.
///
/// # Errors
/// What arXiv says is wrong with the question, or what is wrong with the answer.
pub(super) fn papers(text: &str) -> Result<Vec<String>, String> {
    let mut papers = Vec::new();
    let mut wrong = None;
    let mut is_feed = false;
    elements(text, &mut |path, text| {
        is_feed |= path.first().is_some_and(|root| root == "feed");
        match path {
            [_, entry, id] if entry == "entry" && id == "id" => match of_id(text) {
                Some(paper) if papers.len() < MAX_PAPERS => papers.push(paper),
                Some(_) => {}
                // An error is an entry, too.
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
        None => Err("no feed".to_owned()),
    }
}

/// The licence of a paper, from its record; `None` where it names none.
///
/// # Errors
/// What arXiv says is wrong, or what is wrong with the answer.
pub(super) fn licence(text: &str) -> Result<Option<String>, String> {
    let (mut licence, mut wrong, mut is_record) = (None, None, false);
    elements(text, &mut |path, text| {
        is_record |= path.first().is_some_and(|root| root == "OAI-PMH");
        match path.last().map(String::as_str) {
            Some("license") => licence = Some(text.to_owned()),
            Some("error") => wrong = Some(text.to_owned()),
            _ => {}
        }
    })?;
    match wrong {
        Some(wrong) => Err(format!("arXiv says: {}", shortened(&wrong))),
        None if is_record => Ok(licence),
        None => Err("no record".to_owned()),
    }
}

/// The paper in `http://arxiv.org/abs/cs.AI/0101001v1`.
fn of_id(id: &str) -> Option<String> {
    let (_, paper) = id.trim().split_once("arxiv.org/abs/")?;
    is_paper(paper).then(|| paper.to_owned())
}

/// Whether a text is a paper's number with its version.
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

/// Show each element's path of names, without their prefixes, and its own text, when it ends.
fn elements(text: &str, see: &mut dyn FnMut(&[String], &str)) -> Result<(), String> {
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
                see(&path, "");
                path.pop();
            }
            Event::Text(text) => add(&mut texts, &text),
            Event::CData(text) => add(&mut texts, &text),
            Event::GeneralRef(named) => add(&mut texts, entity::resolve(&named)),
            Event::End(_) => {
                see(&path, &texts.pop().unwrap_or_default());
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
    fn papers_are_known_by_their_numbers() {
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
    fn feeds_that_are_none_are_refused() {
        for (text, reason) in [
            ("", "no feed"),
            ("<html><body>busy</body></html>", "no feed"),
            ("<feed><entry>", "ends inside"),
            ("<feed></entry>", ""),
            (&format!("<feed>{}", "<a>".repeat(50)), "deeper"),
        ] {
            let said = papers(text).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
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
                let _ = licence(&text);
            }
        });
    }
}
