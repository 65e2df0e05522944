//! Which of a full store's objects go: one file a policy.

pub(crate) mod second_chance;
