//! The named entities of XML.

/// The character of a predefined XML entity; U+FFFD for any other entity.
pub fn resolve(entity: &str) -> &'static str {
    match entity {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "\u{fffd}",
    }
}
