//! Decodes text of unknown encoding and guesses its language.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::Encoding;

/// Losslessly decoded text, and the name of its encoding in Python's codecs.
pub struct Decoded<'a> {
    /// The text, without a byte-order mark.
    pub text: Cow<'a, str>,
    /// `utf-8`, `utf-8-sig`, `utf-16`, `gb18030`, `latin-1`, …
    pub encoding: &'static str,
}

/// Decodes bytes that may be text.
///
/// # Errors
/// The reason why the bytes are not text.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, String> {
    let decoded = if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        let text = std::str::from_utf8(rest)
            .map_err(|e| format!("marked as UTF-8, but byte {} is not", e.valid_up_to()))?;
        Decoded {
            text: text.into(),
            encoding: "utf-8-sig",
        }
    } else if let Some((encoding, 2)) = Encoding::for_bom(bytes) {
        let text = encoding
            .decode_without_bom_handling_and_without_replacement(&bytes[2..])
            .ok_or("marked as UTF-16, but is not")?;
        Decoded {
            text,
            encoding: "utf-16",
        }
    } else if let Ok(text) = std::str::from_utf8(bytes) {
        Decoded {
            text: text.into(),
            encoding: "utf-8",
        }
    } else {
        decode_legacy(bytes)?
    };
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x0b');
    let controls = decoded.text.chars().filter(|&c| control(c)).count();
    if decoded.text.contains('\0') || controls * 100 > decoded.text.len() {
        return Err("binary data of no known type".into());
    }
    Ok(decoded)
}

fn decode_legacy(bytes: &[u8]) -> Result<Decoded<'_>, String> {
    if bytes.contains(&0) {
        return Err("binary data of no known type".into());
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let encoding = detector.guess(None, Utf8Detection::Deny);
    let text = encoding
        .decode_without_bom_handling_and_without_replacement(bytes)
        .ok_or("text of an encoding that could not be told")?;
    let encoding = python_name(encoding, bytes)
        .ok_or_else(|| format!("text in {}, which Python's codecs lack", encoding.name()))?;
    Ok(Decoded { text, encoding })
}

/// The Python codec that decodes `bytes` to the same text.
fn python_name(encoding: &'static Encoding, bytes: &[u8]) -> Option<&'static str> {
    Some(match encoding.name() {
        // The web's windows-1252 maps bytes that cp1252 leaves undefined to control characters.
        "windows-1252" if bytes.iter().any(|b| (0x80..0xa0).contains(b)) => {
            let hole = |b: &u8| matches!(b, 0x81 | 0x8d | 0x8f | 0x90 | 0x9d);
            return (!bytes.iter().any(hole)).then_some("cp1252");
        }
        "windows-1252" => "latin-1",
        "GBK" | "gb18030" => "gb18030",
        "Big5" => "big5hkscs",
        "Shift_JIS" => "cp932",
        "EUC-JP" => "euc_jp",
        "EUC-KR" => "cp949",
        "windows-1250" => "cp1250",
        "windows-1251" => "cp1251",
        "windows-1253" => "cp1253",
        "windows-1254" => "cp1254",
        "windows-1255" => "cp1255",
        "windows-1256" => "cp1256",
        "windows-1257" => "cp1257",
        "windows-1258" => "cp1258",
        "windows-874" => "cp874",
        "ISO-8859-2" => "iso8859_2",
        "ISO-8859-4" => "iso8859_4",
        "ISO-8859-5" => "iso8859_5",
        "ISO-8859-6" => "iso8859_6",
        "ISO-8859-7" => "iso8859_7",
        "ISO-8859-8" => "iso8859_8",
        "KOI8-U" => "koi8_u",
        _ => return None,
    })
}

/// Guesses the language (ISO 639-1 code) from the script and from common words.
pub fn language(text: &str) -> Option<&'static str> {
    let (mut letters, mut han, mut kana, mut ascii) = (0usize, 0usize, 0usize, 0usize);
    for c in text.chars().take(20_000).filter(|c| c.is_alphabetic()) {
        letters += 1;
        match c {
            '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' => han += 1,
            '\u{3040}'..='\u{30ff}' => kana += 1,
            _ if c.is_ascii() => ascii += 1,
            _ => {}
        }
    }
    if kana * 10 > letters && kana > 0 {
        return Some("ja");
    }
    if han * 5 > letters && han >= 10 {
        return Some("zh");
    }
    let words = || text.split_whitespace().take(5_000);
    let common = [
        "the", "of", "and", "to", "in", "is", "a", "for", "that", "with",
    ];
    let hits = words()
        .filter(|w| common.contains(&w.to_ascii_lowercase().as_str()))
        .count();
    (ascii * 10 > letters * 9 && hits >= 3 && hits * 20 >= words().count()).then_some("en")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_have_python_names() {
        let text = "城市,人口\n北京,2154\n上海,2424\n这是一个用来判断编码的较长的句子,0\n";
        let (gbk, _, _) = encoding_rs::GB18030.encode(text);
        let decoded = decode(&gbk).unwrap();
        assert_eq!((decoded.encoding, decoded.text.as_ref()), ("gb18030", text));
        assert_eq!(decode("a,b\n".as_bytes()).unwrap().encoding, "utf-8");
        assert_eq!(decode(b"\xef\xbb\xbfa,b\n").unwrap().encoding, "utf-8-sig");
        assert_eq!(decode(b"\xff\xfea\0b\0").unwrap().encoding, "utf-16");
        let latin =
            decode(b"Le caf\xe9 est tr\xe8s bon, n'est-ce pas? Voil\xe0 l'\xe9t\xe9.").unwrap();
        assert_eq!(latin.encoding, "latin-1");
    }

    #[test]
    fn binary_data_is_not_text() {
        assert!(decode(&[0; 100]).is_err());
        assert!(decode(b"\x01\x02\x03\x04\x05abc").is_err());
        assert!(decode(b"\xff\xfe\x00\xd8").is_err());
    }

    #[test]
    fn languages() {
        assert_eq!(
            language("The cat is on the mat and the dog is in the house."),
            Some("en")
        );
        assert_eq!(
            language("这是一个中文的句子，用来测试语言的判断。"),
            Some("zh")
        );
        assert_eq!(language("これはにほんごのぶんです。"), Some("ja"));
        assert_eq!(language("1 2 3"), None);
    }

    #[test]
    fn fuzz_decode() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(decoded) = decode(bytes) {
                let _ = language(&decoded.text);
            }
        });
    }
}
