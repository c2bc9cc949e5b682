//! The language: YAML files in, a typed [`types::Config`] out, with every error at its line.
//!
//! ```text
//! load ──▶ parse ──▶ Node tree (extends, includes, environment, overrides) ──▶ decode ──▶ Config
//! ```
//! `diagnostic` collects what is wrong on the way, `reference` and `json_schema` document what is right. Types are
//! declared with the macros of `macros`; `layers` declares its own the same way.

pub mod augment;
pub mod data;
pub mod decode;
pub mod diagnostic;
pub mod environment;
pub mod health;
pub mod json_schema;
pub mod load;
pub mod loss;
pub(crate) mod macros;
pub mod merge;
pub mod metric;
pub mod nearest;
pub mod node;
pub mod optimizer;
pub mod overrides;
pub mod parse;
pub mod pattern;
pub mod reader;
pub mod records;
pub mod reference;
pub mod sampling;
pub mod schedule;
pub mod schema;
pub mod source;
pub mod sweep;
pub mod train;
pub mod types;
pub mod validate;
pub mod values;
pub mod weights;

pub use decode::{Cx, Decode};
pub use load::{ConfigError, Loaded, load, load_sweep, load_with};
pub use node::Node;
pub use overrides::Override;
pub use types::Config;
