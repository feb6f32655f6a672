//! What decides on the host: values and `now` in, values with their reasons out.
