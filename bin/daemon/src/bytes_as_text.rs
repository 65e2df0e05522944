//! Bytes that need not be UTF-8, as a string of the characters U+0000 to U+00FF: text stays short and bytes stay bytes.
//!
//! For `#[serde(with = "bytes_as_text")]`.

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

/// Writes them.
///
/// # Errors
/// The serializer's.
pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>())
}

/// Reads them.
///
/// # Errors
/// The deserializer's, or there is another character.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let byte = |character| u8::try_from(character).map_err(|_| D::Error::custom("not a byte"));
    text.chars().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Carrier(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn bytes_travel_whatever_they_are() {
        let carrier = Carrier((0..=255).collect());
        let sent = serde_json::to_string(&carrier).unwrap();
        assert_eq!(serde_json::from_str::<Carrier>(&sent).unwrap(), carrier);
        assert!(serde_json::from_str::<Carrier>("\"€\"").is_err());
    }
}
