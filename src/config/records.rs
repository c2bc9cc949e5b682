//! The section `records`: what a run writes for other programs to read.

use super::macros::options;

options! {
    /// What a run writes for other programs, beside `metrics.jsonl` and `metrics.csv`.
    pub struct Records {
        /// Event files of TensorBoard, in the folder `tensorboard` of the run.
        tensorboard: Option<TensorBoard>,
    }
}

options! {
    /// Event files of TensorBoard: all numbers, and the configuration as text.
    pub struct TensorBoard {
        /// Histograms of all parameters too, at each validation.
        histograms: bool = false,
    }
}
