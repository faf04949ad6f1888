//! The named entities of XML.

/// The character of an entity that XML itself defines; any other is shown as unknown.
pub(super) fn resolve(entity: &str) -> &'static str {
    match entity {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "\u{fffd}",
    }
}
