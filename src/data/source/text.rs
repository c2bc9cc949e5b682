//! Text for next-token prediction.

use super::{read, spec};
use crate::config::data::{Text, Tokenizer};
use crate::data::dataset::{Content, Samples, Task};
use crate::data::{DataError, Vocabulary};
use crate::graph::TensorType;

pub(super) fn open(options: &Text, like: Option<&Content>) -> Result<Content, DataError> {
    let path = &options.path;
    let bytes = read(path)?;
    let trained_on = match like.map(|content| &content.samples) {
        Some(Samples::Tokens { vocabulary, .. }) => Some(vocabulary),
        _ => None,
    };
    let (vocabulary, tokens) = match (options.tokenizer, trained_on) {
        (Tokenizer::Byte, None | Some(Vocabulary::Bytes)) => {
            (Vocabulary::Bytes, bytes.into_iter().map(i32::from).collect())
        }
        (Tokenizer::Char, None | Some(Vocabulary::Chars(_))) => {
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                DataError::content(path, format!("this is no UTF-8: byte {at} cannot be read"))
            })?;
            let vocabulary = trained_on.cloned().unwrap_or_else(|| Vocabulary::of(&text));
            let tokens = vocabulary.encode(&text);
            (vocabulary, tokens.map_err(|error| DataError::content(path, error.to_string()))?)
        }
        _ => {
            let reason = "its tokenizer is not that of `data.train`";
            return Err(DataError::content(path, reason));
        }
    };
    if tokens.len() <= options.context {
        let context = options.context;
        let reason =
            format!("{} tokens hold no window of {context} and their successors", tokens.len());
        return Err(DataError::content(path, reason));
    }
    Ok(Content {
        inputs: vec![spec("tokens", TensorType::i32([options.context]))],
        target: spec("next tokens", TensorType::i32([options.context])),
        task: Task::NextToken { vocab: vocabulary.len() },
        columns: Vec::new(),
        samples: Samples::Tokens { tokens, context: options.context, vocabulary },
    })
}
