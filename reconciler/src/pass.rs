//! One pass: gather, decide, act, record. The only file that sees every stage.
