//! The program `flash-sale`.

use std::process::ExitCode;

fn main() -> ExitCode {
    flash_sale::main()
}
