//! Tests of packed rules: changes that pack counts.

use limiter_testkit::LiveLimiters;
use serde_json::{Value, json};

use crate::support::{limiter, limiter_with_input, server};

const PACKED: &str =
    r#"{"rule":"user","keys":["user:{id}"],"limits":["2/h"],"mode":"enforce","origin":"file","packed":16384}"#;
const BUCKET: &str = r#"{"rule":"bucket","keys":["bucket"],"limits":[{"limit":"3/h","algorithm":"token_bucket"}],"mode":"enforce","origin":"attribute"}"#;

#[test]
fn a_change_of_packed_is_confirmed() {
    let server = server();
    let url = server.url();
    LiveLimiters::on(&server).beat(&format!("{}\n{BUCKET}", PACKED.replace(r#","packed":16384"#, "")), &["-"]);
    let import = |toml: &str, options: &[&str]| {
        limiter_with_input(&url, &[&["rules", "import", "-", "--wait", "0s"], options].concat(), toml.as_bytes())
    };
    let packed = "[rules.user]\nlimit = '2/h'\npacked = 16384\n";
    let new_counts = "`user` starts new counts, so each key has its full quota again: `packed` changes from";
    let refused = import(packed, &[]);
    refused.failed(2, "`--yes` must be given for a change that starts new counts");
    refused.failed(2, &format!("{new_counts} none to 16384"));
    import(packed, &["--yes"]).ok();
    import(&packed.replace("16384", "32768"), &[]).failed(2, &format!("{new_counts} 16384 to 32768"));
    // Other settings of a packed rule keep the counts.
    limiter(&url, &["rules", "set", "user", "3/h", "--wait", "0s"]).ok();
    let listed = limiter(&url, &["rules", "list", "--json"]).json();
    assert_eq!(listed["rules"][0]["packed"], json!(16384), "{listed}");
    import("[rules.user]\nlimit = '3/h'\n", &[]).failed(2, &format!("{new_counts} 16384 to none"));
    let result: Value = import("[rules.user]\nlimit = '3/h'\n", &["--yes", "--json"]).json();
    assert_eq!(result["notes"], json!([format!("{new_counts} 16384 to none")]));
    let bucket = import("[rules.user]\nlimit = '3/h'\n[rules.bucket]\npacked = 16384\n", &["--yes"]);
    assert_eq!(bucket.code, Some(0), "{bucket:?}");
    let warning = "warning: `bucket` is packed beside `token_bucket` in the limiters that live: they reject the text";
    assert!(bucket.stderr.contains(warning), "{bucket:?}");
}
