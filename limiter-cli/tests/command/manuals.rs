//! `completions`, `man` and the help.

use crate::support::limiter;

#[test]
fn each_shell_has_completions_and_each_command_a_page() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = limiter("", &["completions", shell]).ok();
        assert!(script.contains("rollback"), "{shell}");
    }
    let pages = limiter("", &["man"]).ok();
    for name in
        ["limiter", "limiter-check", "limiter-rules", "limiter-rules-set", "limiter-instances", "limiter-doctor"]
    {
        assert!(pages.contains(&format!("\n.TH {name} 1")), "{name}");
    }
}

#[test]
fn the_help_states_the_exit_codes_and_needs_no_store() {
    let help = limiter("", &["--help"]).ok();
    assert!(help.contains("Exit codes: 0 done or allowed, 1 denied, 2 "), "{help}");
    assert!(limiter("", &["rules", "set", "--help"]).ok().contains("limiter rules set getId 50/10s"));
}
