//! Texts in bytes of unknown encoding.

use std::borrow::Cow;

use encoding_rs::{Encoding, GB18030};

/// Minimum number of characters of a UTF-16 text between other bytes.
const MIN_WIDE: usize = 6;

/// The bytes as text: as UTF-8, where ASCII stays readable in any encoding that extends it, as GB18030, whose
/// second bytes look like ASCII, and as UTF-16.
pub(super) fn texts(bytes: &[u8]) -> Vec<Cow<'_, str>> {
    let mut texts = match str::from_utf8(bytes) {
        Ok(text) => vec![text.into()],
        Err(_) => {
            let (chinese, _) = GB18030.decode_without_bom_handling(bytes);
            vec![String::from_utf8_lossy(bytes), chinese]
        }
    };
    if bytes.contains(&0) {
        texts.push(wide(bytes).into());
    }
    if let Some((utf16, 2)) = Encoding::for_bom(bytes) {
        texts.push(utf16.decode_without_bom_handling(&bytes[2..]).0);
    }
    texts
}

/// The runs of ASCII characters in UTF-16, one per line, in either byte order and from any offset.
fn wide(bytes: &[u8]) -> String {
    let is_printable =
        |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let (mut runs, mut at) = (String::new(), 0);
    while at < bytes.len() {
        let pairs = bytes[at..].chunks(2);
        let run = pairs
            .take_while(|pair| is_printable(pair[0]) && pair.get(1).is_none_or(|zero| *zero == 0));
        let run: String = run.map(|pair| char::from(pair[0])).collect();
        let end = at + 2 * run.len();
        if run.len() >= MIN_WIDE {
            runs += &run;
            runs.push('\n');
            // With the high byte first, the zero after the last character belongs to the next one.
            if let Some(last) = bytes.get(end).filter(|last| is_printable(**last)) {
                runs += &run;
                runs.push(char::from(*last));
                runs.push('\n');
            }
        }
        at = end.max(at + 1);
    }
    runs
}
