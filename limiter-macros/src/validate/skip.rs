//! `skip`, which a method of a limited `impl` block has alone; there it is gone before anybody asks.

use crate::args::Args;
use crate::errors::Errors;

/// Whether one of the attributes says `skip`, where it does not belong.
pub(crate) fn check(rules: &[Args], errors: &mut Errors) -> bool {
    let mut skips = false;
    for args in rules {
        let Some(skip) = args.skip() else { continue };
        skips = true;
        if args.is_empty() && rules.len() == 1 {
            errors.at(
                skip,
                "there is nothing to `skip` here: it exempts a method from the attribute of its `impl` block",
            );
        } else {
            errors.at(skip, "`skip` stands alone: remove it, or everything beside it");
        }
    }
    skips
}
