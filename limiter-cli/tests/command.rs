//! Tests of `limiter`: the built program against real servers.

#[path = "command/support.rs"]
mod support;

#[path = "command/activity.rs"]
mod activity;
#[path = "command/bad_input.rs"]
mod bad_input;
#[path = "command/checks.rs"]
mod checks;
#[path = "command/dashboard.rs"]
mod dashboard;
#[path = "command/instances.rs"]
mod instances;
#[path = "command/live.rs"]
mod live;
#[path = "command/manuals.rs"]
mod manuals;
#[path = "command/outputs.rs"]
mod outputs;
#[path = "command/packed.rs"]
mod packed;
#[path = "command/plans.rs"]
mod plans;
#[path = "command/programs.rs"]
mod programs;
#[path = "command/recipes.rs"]
mod recipes;
#[path = "command/rule_checks.rs"]
mod rule_checks;
#[path = "command/shared_rules.rs"]
mod shared_rules;
#[path = "command/slots.rs"]
mod slots;
#[path = "command/terminal.rs"]
mod terminal;
