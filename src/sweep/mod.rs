//! Sweeps: many runs of one configuration with different values.
//!
//! `space` turns a trial's number into values, `store` keeps what became of each trial, `trial`
//! runs one as a `wootz train` of its own, `run` goes through them all. A trial is a process of
//! its own so that whatever ends it, from a full memory to a lost device, ends only it, and so
//! that a sweep trains by the same code as `train` does.

mod error;
pub mod run;
pub mod sobol;
pub mod space;
pub mod store;
mod trial;

pub use error::SweepError;
