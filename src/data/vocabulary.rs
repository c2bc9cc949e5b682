//! Tokens of a text: its characters, or bytes.

use super::DataError;
/// What the tokens stand for.
#[derive(Clone, Debug, PartialEq)]
pub enum Vocabulary {
    /// Characters in the order of their code points.
    Chars(Vec<char>),
    /// Bytes: token = value.
    Bytes,
}

impl Vocabulary {
    /// The characters of a text.
    pub fn of(text: &str) -> Self {
        let chars: std::collections::BTreeSet<char> = text.chars().collect();
        Vocabulary::Chars(chars.into_iter().collect())
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Vocabulary::Chars(chars) => chars.len(),
            Vocabulary::Bytes => 256,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A text's tokens.
    ///
    /// # Errors
    /// When a character is not in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, DataError> {
        match self {
            Vocabulary::Bytes => Ok(text.bytes().map(i32::from).collect()),
            Vocabulary::Chars(chars) => text
                .chars()
                .map(|c| {
                    let found = chars.binary_search(&c).map(|at| at as i32);
                    found.map_err(|_| {
                        DataError::Unfit(format!(
                            "the character {c:?} does not occur in the training text"
                        ))
                    })
                })
                .collect(),
        }
    }

    /// Bytes of a token in UTF-8.
    pub fn bytes(&self, token: usize) -> usize {
        match self {
            Vocabulary::Chars(chars) => chars.get(token).map_or(0, |c| c.len_utf8()),
            Vocabulary::Bytes => 1,
        }
    }

    /// A token as text; a byte that is no character alone becomes �.
    pub fn decode(&self, token: usize) -> String {
        match self {
            Vocabulary::Chars(chars) => chars.get(token).map(char::to_string).unwrap_or_default(),
            Vocabulary::Bytes => String::from_utf8_lossy(&[token as u8]).into_owned(),
        }
    }
}
