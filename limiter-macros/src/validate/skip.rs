//! `skip`, which is valid only on a method of a limited `impl` block. There it is removed before validation.

use crate::args::Args;
use crate::errors::Errors;

/// Reports each misplaced `skip`, and returns whether there was one.
pub(crate) fn check(rules: &[Args], errors: &mut Errors) -> bool {
    let mut skips = false;
    for args in rules {
        let Some(skip) = args.skip() else { continue };
        skips = true;
        if args.is_empty() && rules.len() == 1 {
            errors.push_at(
                skip,
                "there is nothing to `skip` here: it exempts a method from the attribute of its `impl` block",
            );
        } else {
            errors.push_at(skip, "`skip` stands alone: remove it, or everything beside it");
        }
    }
    skips
}
