//! Wootz trains neural networks that are written down in YAML.

pub mod config;
