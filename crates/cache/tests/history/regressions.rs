//! Histories that went wrong once, made as small as they go.
