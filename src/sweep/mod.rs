//! Sweeps: many runs of one configuration with different values.
//!
//! `space` draws a trial's values with the samplers `sobol`, `tpe` and `cma_es`; `schedule` says
//! what is done next; `store` keeps what became of each trial in the database of `db`; `trial` runs
//! one as a `wootz train` of its own; `run` goes through them all. A trial is a process of
//! its own so that whatever ends it, from a full memory to a lost device, ends only it, and so
//! that a sweep trains by the same code as `train` does.

mod cma_es;
mod db;
mod error;
pub mod run;
pub mod schedule;
pub mod sobol;
pub mod space;
pub mod store;
mod tpe;
mod trial;

pub use error::SweepError;
