//! Text for next-token prediction.

use super::{read, spec};
use crate::config::data::Text;
use crate::data::dataset::{Content, Samples, Task};
use crate::data::{DataError, Vocabulary};
use crate::graph::TensorType;

pub(super) fn open(options: &Text, like: Option<&Content>) -> Result<Content, DataError> {
    let bytes = read(&options.path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        DataError::content(&options.path, format!("this is no UTF-8: byte {at} cannot be read"))
    })?;
    let vocabulary = match like.map(|content| &content.samples) {
        Some(Samples::Tokens { vocabulary, .. }) => vocabulary.clone(),
        _ => Vocabulary::of(&text, options.tokenizer),
    };
    let tokens = vocabulary.encode(&text)?;
    if tokens.len() <= options.context {
        let reason = format!(
            "{} tokens hold no window of {} and their successors",
            tokens.len(),
            options.context
        );
        return Err(DataError::content(&options.path, reason));
    }
    Ok(Content {
        inputs: vec![spec("tokens", TensorType::i32([options.context]))],
        target: spec("next tokens", TensorType::i32([options.context])),
        task: Task::NextToken { vocab: vocabulary.len() },
        columns: Vec::new(),
        samples: Samples::Tokens { tokens, context: options.context, vocabulary },
    })
}
