//! The wire format of Protocol Buffers, as far as OTLP needs it. Field numbers are those of `opentelemetry/proto` 1.x.

/// A message that is being written. Empty fields are left out, as proto3 has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// How a value is encoded.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

impl Message {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u8, wire: u8) {
        self.varint(u64::from((field << 3) | wire));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn number(mut self, field: u8, value: u64) -> Self {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    pub(crate) fn fixed(mut self, field: u8, value: u64) -> Self {
        self.key(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn double(self, field: u8, value: f64) -> Self {
        self.fixed(field, value.to_bits())
    }

    pub(crate) fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(crate) fn text(self, field: u8, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u8, value: Self) -> Self {
        self.bytes(field, &value.0)
    }

    pub(crate) fn messages(self, field: u8, values: impl IntoIterator<Item = Self>) -> Self {
        let add = |message: Self, value| message.message(field, value);
        values.into_iter().fold(self, add)
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A name and its value.
pub(crate) type Attribute = (&'static str, Value);

/// `KeyValue`.
pub(crate) fn attribute((name, value): &Attribute) -> Message {
    let value = match value {
        Value::Text(text) => Message::default().text(1, text),
        Value::Flag(flag) => Message::default().number(2, u64::from(*flag)),
        Value::Number(number) => Message::default().number(3, *number),
    };
    Message::default().text(1, name).message(2, value)
}

/// The request of either kind: what was measured, with the names of service and library.
pub(crate) fn request(service: &str, items: impl IntoIterator<Item = Message>) -> Message {
    let name = ("service.name", Value::from(service));
    let version = ("service.version", Value::from(env!("CARGO_PKG_VERSION")));
    let resource = Message::default().messages(1, [attribute(&name), attribute(&version)]);
    let scope = Message::default().text(1, "pybench");
    let items = Message::default().message(1, scope).messages(2, items);
    let of_resource = Message::default().message(1, resource).message(2, items);
    Message::default().message(1, of_resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification of the wire format.
    #[test]
    fn values_are_encoded_as_specified() {
        let bytes = |message: Message| message.into_bytes();
        assert_eq!(bytes(Message::default().number(1, 150)), [0x08, 0x96, 0x01]);
        let text = bytes(Message::default().text(2, "testing"));
        assert_eq!(text, *b"\x12\x07testing");
        let inner = Message::default().number(1, 150);
        let outer = bytes(Message::default().message(3, inner));
        assert_eq!(outer, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let fixed = bytes(Message::default().fixed(7, 1));
        assert_eq!(fixed, [0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes(Message::default().double(4, 0.0))[0], 0x21);
    }
}
