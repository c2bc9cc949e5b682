//! The WGSL kernel files, their composition and their inspection.
