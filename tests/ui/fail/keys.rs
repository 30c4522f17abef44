//! `key` and `name`, as far as the attribute reads them.

#![allow(unused_variables)]

use rate_limited::rate_limited;

#[rate_limited(key = "", limit = "5/10s", fallback = ())]
fn empty() {}

#[rate_limited(key = "user:{}", limit = "5/10s", fallback = ())]
fn no_value(id: u64) {}

#[rate_limited(key = "user:{:?}", limit = "5/10s", fallback = ())]
fn no_value_but_a_spec(id: u64) {}

#[rate_limited(key = "user:{0}", limit = "5/10s", fallback = ())]
fn counted(id: u64) {}

#[rate_limited(key = "user:{id", limit = "5/10s", fallback = ())]
fn unclosed(id: u64) {}

#[rate_limited(key = "user:id}", limit = "5/10s", fallback = ())]
fn unopened(id: u64) {}

#[rate_limited(key = "user:{id of user}", limit = "5/10s", fallback = ())]
fn no_expression(id: u64) {}

#[rate_limited(key = "user:{id:spec}", limit = "5/10s", fallback = ())]
fn no_spec(id: u64) {}

#[rate_limited(key = id, limit = "5/10s", fallback = ())]
fn no_name(id: u64) {}

#[rate_limited(key = "k", name = "", limit = "5/10s", fallback = ())]
fn empty_name() {}

#[rate_limited(key = "k", name = NAME, limit = "5/10s", fallback = ())]
fn other_name() {}

#[rate_limited(key = "user:{id}", name = "user:{id}", limit = "5/10s", fallback = ())]
fn name_with_a_value(id: u64) {}

fn main() {}
