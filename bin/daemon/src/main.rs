//! `copald`.
mod args;
mod background;
mod control;
mod glob;
mod log;
mod management;
mod parameters;
mod plant;
mod storage_spec;
mod workdir;

fn main() {}
