//! `RATE_LIMITED_MODE`, the switch of all rules.

use rate_limited::{Denied, ErrorKind, Key, Limiter, Mode, Rule, Source, rate_limited};

use crate::child_process;
use crate::support::limit;

#[rate_limited(key = "switched", limit = "1/h")]
fn switched() -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = "denying", limit = "1/h")]
fn denying() -> Result<(), Denied> {
    Ok(())
}

#[rate_limited(key = "trial", limit = "1/h")]
fn trial() -> Result<(), Denied> {
    Ok(())
}

#[test]
fn the_switch_sets_the_mode_of_every_limiter() {
    for mode in ["off", "shadow", "enforce"] {
        child_process::run("rules::switch::calls_in_the_switched_mode", &[("RATE_LIMITED_MODE", mode)]);
    }
    child_process::run("rules::switch::unknown_switch", &[("RATE_LIMITED_MODE", "OFF")]);
}

#[test]
#[ignore = "runs in a child process"]
fn calls_in_the_switched_mode() {
    if !child_process::is_child() {
        return;
    }
    let switch = child_process::variable("RATE_LIMITED_MODE");
    let builder =
        Limiter::builder().rule("denying", Rule::new().mode(Mode::Deny)).rule("trial", Rule::new().mode(Mode::Shadow));
    let limiter = builder.build().expect("valid");
    limiter.scope_sync(|| {
        let results = [switched().is_ok(), switched().is_ok(), denying().is_ok(), trial().is_ok(), trial().is_ok()];
        let expected = match &*switch {
            "off" => [true; 5],
            "shadow" => [true, true, false, true, true],
            _ => [true, false, false, true, false],
        };
        assert_eq!(results, expected, "{switch}");
    });
    // Direct calls without a rule have no mode of their own.
    let limiter = Limiter::memory();
    let (key, limit) = (Key::new("direct"), limit("1/h"));
    let check = || limiter.check_blocking(&key, &limit).expect("memory");
    assert!(check().is_allowed());
    let all = limiter.check_all_blocking(&[(&key, &limit, 1)]).expect("memory");
    let peeked = limiter.peek_blocking(&key, &limit).expect("memory");
    assert_eq!((all.is_allowed(), peeked.is_allowed()), (switch != "enforce", switch != "enforce"));
    match (&*switch, check().into_result()) {
        ("off", Ok(allowed)) => assert_eq!((allowed.source(), allowed.shadowed().is_some()), (Source::Mode, false)),
        ("shadow", Ok(allowed)) => assert_eq!(allowed.shadowed().expect("one permit").limit(), limit),
        ("enforce", Err(denied)) => assert_eq!(denied.source(), Source::Store),
        (_, decision) => panic!("{switch}: {decision:?}"),
    }
}

#[test]
#[ignore = "runs in a child process"]
fn unknown_switch() {
    if !child_process::is_child() {
        return;
    }
    let error = Limiter::builder().build().expect_err("an unknown mode");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(
        error.to_string(),
        "`RATE_LIMITED_MODE` must be `off`, `shadow` or `enforce`, got `OFF`: write one of them, or unset it"
    );
    // A limiter that cannot fail to be made enforces its limits.
    let (limiter, key, limit) = (Limiter::memory(), Key::new("a"), limit("1/h"));
    assert!(limiter.check_blocking(&key, &limit).expect("memory").is_allowed());
    assert!(limiter.check_blocking(&key, &limit).expect("memory").is_denied());
}
