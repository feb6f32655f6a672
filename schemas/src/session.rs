//! The sans-I/O Noise session (LK-1).
