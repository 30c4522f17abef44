//! `rate-limited` side by side with its peers and with the published designs. Unpublished, and no default member of the
//! workspace: it builds every peer.
//!
//! | to | see |
//! |---|---|
//! | add somebody | [`contestants`], one file each; [`contestant`] for the trait |
//! | add a case | [`cases`] |
//! | know how a figure is measured | [`measure`], and under it [`load`] and [`spin`] |
//! | know what is promised | [`bars`] |
//! | compare two commits | [`pairs`] |
//! | compare scripts, without a limiter around them | [`scripts`] |

pub mod bars;
pub mod cases;
pub mod compare;
pub mod contestant;
pub mod contestants;
pub mod kept;
pub mod load;
pub mod measure;
pub mod order;
pub mod pairs;
pub mod progress;
pub mod report;
pub mod running;
pub mod sample;
pub mod scripts;
pub mod server;
pub mod spin;
pub mod tally;
