//! Wootz trains neural networks that are written down in YAML: the model, data and optimizer
//! specs become a layer graph, the whole training step is planned ahead, and it runs as WGSL
//! compute shaders through wgpu or on a native CPU executor.

pub mod cli;
pub mod config;
pub mod data;
pub mod device;
pub mod graph;
pub mod kernels;
pub mod layers;
pub mod log;
pub mod ops;
pub mod plan;
pub mod sweep;
pub mod train;
