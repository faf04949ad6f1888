//! Text of observations, as the agent sees it.

use std::collections::BTreeMap;

use base64::Engine as _;

use pybench_types::observation::{Observation, Output, Stopped};

/// The sentence that PyBench puts before an exception.
const ERROR_NOTICE: &str = "There are some errors in the code. All variables in this cell should be redefined. Please Debug:";

/// The text of an observation for the agent: streams, `text/plain` of rich outputs, a placeholder for
/// each picture (`[image: 640x480 png]`), the name and message of an exception, and why a cell was stopped.
pub fn observation_text(observation: &Observation) -> String {
    let mut text = String::new();
    for output in &observation.outputs {
        match output {
            Output::Stream { text: piece, .. } => push(&mut text, piece),
            Output::Result { data } | Output::Display { data } => push(&mut text, &rich(data)),
            Output::Chart { .. } => {}
        }
    }
    if let Some(error) = &observation.error {
        let (ename, evalue) = (&error.ename, &error.evalue);
        push(
            &mut text,
            &format!("{ERROR_NOTICE}\nError: {ename}\n{evalue}\n"),
        );
    }
    if let Some(stopped) = observation.stopped {
        push(&mut text, stop_notice(stopped));
    }
    text
}

/// Whether the text of an observation tells of an exception or of a cell that was stopped.
pub(crate) fn is_failure(text: &str) -> bool {
    let notices = [Stopped::Interrupted, Stopped::Restarted, Stopped::Died];
    let stopped = notices.map(stop_notice);
    stopped.iter().any(|notice| text.ends_with(notice))
        || text.lines().any(|line| line == ERROR_NOTICE)
}

/// Appends a piece on a line of its own.
fn push(text: &mut String, piece: &str) {
    if !text.is_empty() && !text.ends_with('\n') && !piece.is_empty() {
        text.push('\n');
    }
    text.push_str(piece);
}

fn stop_notice(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Interrupted => {
            "[The cell ran longer than allowed and was interrupted. Variables are kept.]"
        }
        Stopped::Restarted => {
            "[The cell ran longer than allowed and could not be interrupted. The interpreter was restarted: all variables are lost.]"
        }
        Stopped::Died => {
            "[The interpreter died, perhaps for lack of memory, and was restarted: all variables are lost.]"
        }
    }
}

/// The text of a MIME bundle: a placeholder for a picture, or else the plain text, or else the types.
fn rich(data: &BTreeMap<String, String>) -> String {
    let picture = data
        .iter()
        .find_map(|(mime, content)| Some((mime.strip_prefix("image/")?, content)));
    if let Some((kind, content)) = picture {
        let kind = kind.trim_end_matches("+xml");
        return match png_size(content).filter(|_| kind == "png") {
            Some((width, height)) => format!("[image: {width}x{height} png]"),
            None => format!("[image: {kind}]"),
        };
    }
    match data.get("text/plain") {
        Some(plain) => plain.clone(),
        None => {
            let types: Vec<_> = data.keys().map(String::as_str).collect();
            format!("[{}]", types.join(", "))
        }
    }
}

/// Width and height from the header of a base64-encoded PNG; line breaks are ignored.
fn png_size(content: &str) -> Option<(u32, u32)> {
    let digits: String = content
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .take(32)
        .collect();
    let header = base64::engine::general_purpose::STANDARD
        .decode(digits)
        .ok()?;
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    (header.get(..8)? == b"\x89PNG\r\n\x1a\n").then_some(())?;
    Some((number(16)?, number(20)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::observation::CellError;

    fn bundle(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        owned.collect()
    }

    #[test]
    fn outputs_are_on_separate_lines_in_order() {
        let observation = Observation {
            outputs: vec![
                Output::Stream {
                    name: "stdout".into(),
                    text: "a\n".into(),
                },
                Output::Display {
                    data: bundle(&[("text/html", "<b>x</b>"), ("text/plain", "x")]),
                },
                Output::Result {
                    data: bundle(&[("application/json", "{}")]),
                },
            ],
            error: Some(CellError {
                ename: "KeyError".into(),
                evalue: "'price'".into(),
                traceback: "long".into(),
            }),
            stopped: Some(Stopped::Interrupted),
        };
        let text = observation_text(&observation);
        let expected = "a\nx\n[application/json]\nThere are some errors in the code. All variables in \
            this cell should be redefined. Please Debug:\nError: KeyError\n'price'\n[The cell ran";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn pictures_become_placeholders() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([0, 0, 2, 128, 0, 0, 1, 224, 8, 6, 0, 0, 0]);
        let mut base64 = base64::engine::general_purpose::STANDARD.encode(&png);
        base64.insert(10, '\n');
        let figure = bundle(&[
            ("image/png", &base64),
            ("text/plain", "<Figure size 640x480>"),
        ]);
        assert_eq!(rich(&figure), "[image: 640x480 png]");
        assert_eq!(
            rich(&bundle(&[("image/svg+xml", "<svg/>")])),
            "[image: svg]"
        );
        assert_eq!(
            rich(&bundle(&[("image/png", "no base64 é")])),
            "[image: png]"
        );
    }
}
