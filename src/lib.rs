//! Wootz.
