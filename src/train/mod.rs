//! Training: from a configuration to a plan, the loop, checkpoints, logs.

pub mod checkpoint;
pub mod compile;
pub mod error;
pub mod evaluate;
pub mod find_lr;
mod health;
mod initial;
pub mod metrics;
pub mod model_io;
pub mod optimizer;
pub mod progress;
pub mod records;
pub mod rules;
pub mod run;
pub mod run_dir;
pub mod schedule;
pub mod signals;
pub mod step;
pub mod watch;
pub mod weights;
