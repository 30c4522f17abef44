//! The program of `flash-sale`. Cargo gives tests the path of a program only if it is of their own package.

use std::process::ExitCode;

fn main() -> ExitCode {
    flash_sale::main()
}
