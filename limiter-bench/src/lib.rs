//! `rate-limited` side by side with its peers and with the published designs. The package is unpublished, and no
//! default member of the workspace, because it builds every peer.
//!
//! | to | see |
//! |---|---|
//! | add a contestant | [`contestants`], one file each; [`contestant`] for the trait |
//! | add a case | [`cases`] |
//! | see how a figure is measured | [`measure`], and below it [`load`] and [`spin`] |
//! | see the goals | [`bars`] |
//! | compare two commits | [`pairs`] |
//! | measure the bytes of a key by its permits, on several servers | [`layouts`] |
//! | measure the layer for services | `layer` |
//! | measure the scripts that ship, without a limiter around them | `scripts` |
//! | measure limits of concurrent calls | `slots` |
//! | prove one master of a cluster at its full size | `scale` |

pub mod bars;
pub mod cases;
pub mod compare;
pub mod contestant;
pub mod contestants;
pub mod kept;
pub mod layouts;
pub mod load;
pub mod measure;
pub mod order;
pub mod pairs;
pub mod progress;
#[cfg(feature = "metrics")]
pub mod recorder;
pub mod report;
pub mod running;
pub mod sample;
#[cfg(feature = "scale")]
pub mod scale;
#[cfg(feature = "layer")]
pub mod layer;
#[cfg(feature = "scripts")]
pub mod scripts;
pub mod server;
#[cfg(feature = "slots")]
pub mod slots;
pub mod spin;
pub mod tally;
