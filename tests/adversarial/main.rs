//! The adversarial suite.

fn main() {}
